//! Members of a queue group on three servers: all work is done, and nothing is done twice that
//! nobody was warned of.

use super::world::{Fate, World, each_seed, world};
use crate::common::simulated::SimulatedClient;
use rand::Rng;
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};
use tidewire_net::Handler;

const TOPIC: &str = "jobs";

/// A member, and the deliveries that it has not acknowledged: their numbers, and what they are.
struct Member {
    client: SimulatedClient,
    window: usize,
    is_in: bool,
    held: VecDeque<(u64, u64)>,
}

/// The fate of the work.
#[derive(Default)]
struct Work {
    published: u64,
    /// The publishers were told that these are there.
    placed: HashSet<u64>,
    refused: HashSet<u64>,
    /// Of each that a member ever had: whether one has acknowledged it.
    seen: HashMap<u64, bool>,
    redelivered: u64,
    lost: bool,
}

impl Member {
    fn new(client: SimulatedClient, window: usize) -> Self {
        Self {
            client,
            window,
            is_in: false,
            held: VecDeque::new(),
        }
    }

    fn join(&self) {
        let payload = json!({
            "action": "subscribe", "topics": [TOPIC], "queue_group": "workers",
            "acknowledge": true, "window": self.window,
        });
        let message = json!({"t": "subscription_update", "p": payload});
        self.client.send(&message);
    }

    fn read(&mut self, work: &mut Work) {
        for message in self.client.receive_json() {
            match message["t"].as_str() {
                Some("job") => {
                    let delivery = message["d"].as_u64().expect("a delivery");
                    let number = message["p"]["n"].as_u64().expect("a number");
                    let is_again = message["rd"] == true;
                    let before = work.seen.insert(number, false);
                    assert!(is_again || before.is_none(), "twice: {message}");
                    work.redelivered += u64::from(is_again);
                    self.held.push_back((delivery, number));
                    assert!(self.held.len() <= self.window, "{message}");
                }
                Some("publication_gap") => work.lost = true,
                Some("subscription_update") => {
                    self.is_in |= message["p"]["success_topics"] == json!([TOPIC]);
                }
                _ => {}
            }
        }
    }

    fn acknowledge(&mut self, count: usize, work: &mut Work) {
        let count = count.min(self.held.len());
        let done: Vec<_> = self.held.drain(..count).collect();
        let deliveries: Vec<u64> = done.iter().map(|(delivery, _)| *delivery).collect();
        work.seen
            .extend(done.iter().map(|(_, number)| (*number, true)));
        if !done.is_empty() {
            let payload = json!({ "deliveries": deliveries });
            self.client
                .send(&json!({"t": "publication_ack", "p": payload}));
        }
    }
}

fn publish(client: &SimulatedClient, work: &mut Work) {
    let number = work.published;
    work.published += 1;
    let payload = json!({"topic": TOPIC, "type": "job", "payload": {"n": number}});
    client.send(&json!({"t": "publish_request", "cid": number.to_string(), "p": payload}));
}

/// The answers to a publisher.
fn receive_all(client: &mut SimulatedClient, work: &mut Work) {
    for message in client.receive_json() {
        let number = message["cid"].as_str().and_then(|cid| cid.parse().ok());
        let Some(number) = number else { continue };
        if message["t"] == "publish_response" {
            work.placed.insert(number);
        } else if message["p"]["code"] == "BROKER_UNAVAILABLE" {
            work.refused.insert(number);
        } else {
            assert_eq!(message["p"]["code"], "PUBLISH_UNKNOWN", "{message}");
        }
    }
}

/// A member's connection breaks, and it joins at another server.
fn move_one<H: Handler>(world: &mut World<H>, members: &mut [Member], work: &mut Work) {
    let number = world.random.random_range(0..members.len());
    let node = world.random.random_range(0..3);
    let client = world.connect(node);
    let member = &mut members[number];
    member.read(work);
    member.client.end.reset();
    *member = Member::new(client, member.window);
    member.join();
}

#[test]
fn members_of_three_servers_do_all_work_whatever_happens_to_redis() {
    let fates = [Fate::Nothing, Fate::Resets, Fate::Restarts, Fate::Losses];
    each_seed(&fates, run);
}

fn run(seed: u64, fate: Fate) {
    let mut world = world(seed, fate);
    let mut work = Work::default();
    let mut publishers: Vec<_> = (0..3).map(|node| world.connect(node)).collect();
    let members = (0..4).map(|number| {
        let window = world.random.random_range(1..5);
        Member::new(world.connect(number % 3), window)
    });
    let mut members: Vec<Member> = members.collect();
    world.run(500);
    members.iter().for_each(Member::join);
    // What was published before is not for the group.
    while !members.iter().all(|member| member.is_in) {
        world.run(100);
        members.iter_mut().for_each(|member| member.read(&mut work));
        assert!(world.now().ms < 10_000, "nobody can join");
    }
    for _ in 0..120 {
        match world.random.random_range(0..20) {
            0..11 => {
                let node = world.random.random_range(0..3);
                for _ in 0..world.random.random_range(1..5) {
                    publish(&publishers[node], &mut work);
                }
            }
            _ if fate == Fate::Nothing => {}
            11..13 => world.cut(),
            13 if fate != Fate::Resets => world.restart(fate),
            16 if fate == Fate::Losses => world.remember(),
            14 | 15 => move_one(&mut world, &mut members, &mut work),
            _ => {}
        }
        let ms = world.random.random_range(1..60);
        world.run(ms);
        for member in &mut members {
            member.read(&mut work);
            let count = world.random.random_range(0..3);
            member.acknowledge(count, &mut work);
        }
    }
    finish(&mut world, &mut members, &mut work);
    // One more, so that it shows that the group goes on.
    publish(&publishers[0], &mut work);
    finish(&mut world, &mut members, &mut work);
    publishers
        .iter_mut()
        .for_each(|client| receive_all(client, &mut work));
    check(&work, fate);
}

/// Everything is there again, and the members do what there is.
fn finish<H: Handler>(world: &mut World<H>, members: &mut [Member], work: &mut Work) {
    for _ in 0..6 {
        world.run(3_000);
        for member in &mut *members {
            member.read(work);
            if !member.is_in {
                member.join();
            }
        }
        // The windows are small.
        for _ in 0..100 {
            for member in &mut *members {
                member.acknowledge(usize::MAX, work);
            }
            world.run(20);
            members.iter_mut().for_each(|member| member.read(work));
        }
    }
}

fn check(work: &Work, fate: Fate) {
    for number in &work.refused {
        assert!(!work.seen.contains_key(number), "{number} was refused");
    }
    let last = work.published - 1;
    assert!(work.placed.contains(&last) && work.seen.contains_key(&last));
    if fate == Fate::Losses {
        return;
    }
    assert!(!work.lost, "a gap was told");
    for number in &work.placed {
        assert_eq!(work.seen.get(number), Some(&true), "{number} is not done");
    }
    let undone = work.seen.iter().find(|(_, is_done)| !**is_done);
    assert_eq!(undone, None);
    if fate == Fate::Nothing {
        assert_eq!(work.placed.len() as u64, work.published);
        assert_eq!(work.redelivered, 0, "nobody has left");
    }
}
