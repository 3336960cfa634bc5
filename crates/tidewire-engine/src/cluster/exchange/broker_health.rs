//! The health of the broker: logged when it changes, and reported to the shards' side.

use super::Exchange;
use super::complaints::Outage;
use crate::topics::broker::{BrokerHealth, BrokerProblem};
use tidewire_redis::{Health, Problems};

impl Exchange {
    pub(super) fn note_health(&mut self, health: Health) {
        match (self.life.health.is_connected, health.is_connected) {
            (false, true) => {
                self.life.away.note_answer();
                self.life.outage = Outage::after_answer();
                tracing::info!(
                    partition = self.partition_name(),
                    version = health.version.as_deref(),
                    is_durable = health.is_durable,
                    "the broker answers",
                );
            }
            (_, false) if self.life.outage.is_new(health.reason.as_deref()) => tracing::warn!(
                partition = self.partition_name(),
                reason = health.reason.as_deref(),
                "the broker does not answer",
            ),
            _ => {}
        }
        if let Some(warning) = &health.warning
            && health.warning != self.life.health.warning
        {
            tracing::warn!(%warning, "the broker works, but its settings should be changed");
        }
        log_problems(&self.life.health.problems, &health.problems);
        self.life.health = health;
        self.tell_health();
    }

    /// The partition, if there are several.
    fn partition_name(&self) -> Option<String> {
        let partition = self.link.partition();
        (partition.count() > 1).then(|| partition.to_string())
    }

    /// Reports the health of the broker to the shards' side.
    pub(super) fn tell_health(&self) {
        let counters = self.link.counters();
        let health = &self.life.health;
        self.broker.set_health(BrokerHealth {
            is_connected: health.is_connected,
            version: health.version.clone(),
            reason: health.reason.clone(),
            warning: health.warning.clone(),
            away_ms: self.life.away.for_ms,
            problems: problems(&health.problems),
            partitions: Vec::new(),
            nodes: self.nodes.list.clone(),
            counts: vec![
                ("publications_offered", counters.offered),
                ("publications_settled", counters.settled),
                ("publications_refused", counters.refused),
                ("publications_unknown", counters.unknown),
                ("batches", counters.batches),
                ("batches_repeated", counters.repeated_batches),
                ("deliveries", counters.delivered),
                ("deliveries_stale", counters.stale),
                ("gaps", counters.gaps),
                ("catch_ups", counters.catch_ups),
                ("reads", counters.reads),
                ("malformed", counters.malformed),
                ("disconnects", counters.disconnects),
                ("lineages", counters.lineages),
                ("probes", counters.probes),
                ("presence_calls", counters.presence_calls),
                ("presence_reads", counters.presence_reads),
                ("group_calls", counters.group_calls),
                ("group_publications", counters.works),
                ("leases_lost", counters.leases_lost),
                ("nodes_lost", counters.nodes_lost),
                ("commands_lost", self.orders.losses),
                ("groups_refused", self.groups.refused),
                ("messages_lost", self.broker.commands.lost()),
                ("channels_refused", counters.channels_refused),
                ("other_forms", counters.other_forms),
                ("unreadable", counters.unreadable),
                ("clock_steps", counters.clock_steps),
                ("closings", self.life.away.closings),
            ],
        });
    }
}

/// Each problem is logged when it begins, when its text changes, and when it ends.
fn log_problems(before: &Problems, now: &Problems) {
    for (problem, text) in now {
        if before.get(problem) != Some(text) {
            tracing::warn!(problem = problem.name(), "{text}");
        }
    }
    for problem in before.keys().filter(|problem| !now.contains_key(problem)) {
        tracing::info!(
            problem = problem.name(),
            "the problem with the broker has ended"
        );
    }
}

fn problems(problems: &Problems) -> Vec<BrokerProblem> {
    let all = problems.iter().map(|(problem, text)| BrokerProblem {
        kind: problem.name(),
        is_fatal: problem.is_fatal(),
        text: text.clone(),
    });
    all.collect()
}
