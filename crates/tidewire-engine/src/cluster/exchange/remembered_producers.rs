//! Producers of all servers, which the broker remembers.

use super::Exchange;
use crate::cluster::convert;
use crate::topics::broker::{Done, ProducerName, ProducerOpening, ProducerPlace, Ticket};
use tidewire_redis::{Attempt, Now, OpenReply, Refusal};

impl Exchange {
    pub(super) fn open_producer(&mut self, opening: &ProducerOpening, ticket: Ticket, now: Now) {
        let number = self.next_number();
        self.asked.producers.insert(number, ticket);
        let ProducerName { user, id } = &opening.name;
        let attempt = opening.attempt.map(|attempt| Attempt {
            instance: attempt.instance,
            number: attempt.number,
        });
        let epoch = opening.random_epoch;
        self.link
            .open_producer(number, (user, id), attempt, epoch, now);
    }

    pub(super) fn keep_producer(
        &mut self,
        name: &ProducerName,
        place: ProducerPlace,
        ticket: Option<Ticket>,
    ) {
        let number = self.next_number();
        if let Some(ticket) = ticket {
            self.asked.producers.insert(number, ticket);
        }
        let opened = OpenReply {
            epoch: place.epoch,
            last: place.last,
            opening: place.opening,
        };
        let name = (&*name.user, &*name.id);
        self.link.keep_producer(number, name, opened);
    }

    pub(super) fn note_opened(&mut self, number: u64, outcome: Result<Option<OpenReply>, Refusal>) {
        if let Some(ticket) = self.asked.producers.remove(&number) {
            let opened = outcome.map(|opened| match opened {
                None => Done::ProducerSuperseded,
                Some(opened) => Done::ProducerOpened(ProducerPlace {
                    epoch: opened.epoch,
                    last: opened.last,
                    opening: opened.opening,
                }),
            });
            ticket.settle(opened.map_err(convert::refusal));
        }
    }

    pub(super) fn note_kept(&mut self, number: u64, is_held: bool) {
        if let Some(ticket) = self.asked.producers.remove(&number) {
            ticket.settle(Ok(Done::ProducerKept(is_held)));
        }
    }
}
