//! Clients that follow a topic with history: what every client has seen is checked at the end.

use super::TOPIC;
use super::world::{Fate, World, each_seed, world};
use crate::common::simulated::SimulatedClient;
use rand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use tidewire_net::Handler;

/// The view of one client of the topic.
struct Follower {
    client: SimulatedClient,
    node: usize,
    is_in: bool,
    position: Option<(Value, u64)>,
    /// A gap was reported, or the recovery was incomplete: the next publication need not join.
    may_miss: bool,
    /// Whether the last event of each user was that it joined.
    present: HashMap<String, bool>,
}

/// The views of all clients, and the answers to publishers.
#[derive(Default)]
struct Log {
    contents: HashMap<(String, u64), u64>,
    acknowledged: HashMap<u64, (String, u64)>,
    refused: HashSet<u64>,
}

impl Log {
    fn note(&mut self, place: (String, u64), number: u64) {
        let known = self.contents.insert(place.clone(), number);
        assert!(
            known.is_none_or(|known| known == number),
            "two contents at {place:?}"
        );
    }
}

impl Follower {
    fn subscribe(&mut self) {
        let mut payload = json!({"action": "subscribe", "topics": [TOPIC]});
        if let Some((epoch, offset)) = &self.position {
            payload["recover"] = true.into();
            payload["recovery"] = json!({TOPIC: {"epoch": epoch, "offset": offset}});
        }
        self.client
            .send(&json!({"t": "subscription_update", "p": payload}));
    }

    fn read(&mut self, log: &mut Log) {
        for message in self.client.receive_json() {
            match message["t"].as_str() {
                Some("x") => self.take(&message, log),
                Some("publication_gap") => {
                    assert_eq!(message["p"]["reason"], "broker", "{message}");
                    self.may_miss = true;
                }
                Some(kind @ ("presence_join" | "presence_leave")) => {
                    let user = message["p"]["user_id"].as_str().expect("a user").to_owned();
                    let is_join = kind == "presence_join";
                    let before = self.present.insert(user, is_join);
                    assert_ne!(before, Some(is_join), "twice: {message}");
                }
                Some("subscription_update") => {
                    let was_in = self.is_in;
                    self.is_in |= message["p"]["success_topics"] == json!([TOPIC]);
                    let recovery = &message["p"]["recovery"][TOPIC];
                    if was_in || !self.is_in || recovery.is_null() {
                        continue;
                    }
                    if recovery["recovered"] != true {
                        let offset = recovery["offset"].as_u64().expect("an offset");
                        self.position = Some((recovery["epoch"].clone(), offset));
                        self.may_miss = false;
                    }
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, message: &Value, log: &mut Log) {
        let offset = message["o"].as_u64().expect("an offset");
        let epoch = message["e"].as_str().expect("an epoch").to_owned();
        let number = message["p"]["n"].as_u64().expect("a number");
        log.note((epoch.clone(), offset), number);
        if let Some((known, last)) = &self.position
            && !std::mem::take(&mut self.may_miss)
        {
            assert_eq!((known, last + 1), (&json!(epoch), offset), "{message}");
        }
        self.position = Some((json!(epoch), offset));
    }
}

#[test]
fn clients_of_three_servers_see_one_log_whatever_happens_to_redis() {
    each_seed(&[Fate::Resets, Fate::Restarts, Fate::Losses], run);
}

fn run(seed: u64, fate: Fate) {
    let mut world = world(seed, fate);
    let mut log = Log::default();
    let mut publishers: Vec<SimulatedClient> = (0..3).map(|node| world.connect(node)).collect();
    let mut followers: Vec<Follower> = (0..4)
        .map(|number| Follower {
            client: world.connect(number % 3),
            node: number % 3,
            is_in: false,
            position: None,
            may_miss: false,
            present: HashMap::new(),
        })
        .collect();
    world.run(500);
    followers.iter_mut().for_each(Follower::subscribe);
    let mut published = 0;
    for _ in 0..120 {
        match world.random.random_range(0..20) {
            0..11 => {
                let node = world.random.random_range(0..3);
                for _ in 0..world.random.random_range(1..5) {
                    publish(&publishers[node], published);
                    published += 1;
                }
            }
            11..13 => world.cut(),
            13 if fate != Fate::Resets => world.restart(fate),
            16 if fate == Fate::Losses => world.remember(),
            14 | 15 => {
                let number = world.random.random_range(0..followers.len());
                let node = world.random.random_range(0..3);
                let client = world.connect(node);
                let follower = &mut followers[number];
                follower.read(&mut log);
                follower.client.end.reset();
                (follower.client, follower.node, follower.is_in) = (client, node, false);
                follower.present.clear();
                follower.subscribe();
            }
            _ => {}
        }
        let ms = world.random.random_range(1..60);
        world.run(ms);
        followers
            .iter_mut()
            .for_each(|follower| follower.read(&mut log));
    }
    // Everything is there again.
    for _ in 0..6 {
        world.run(3_000);
        for follower in &mut followers {
            follower.read(&mut log);
            if !follower.is_in {
                follower.subscribe();
            }
        }
    }
    // One more, so that all can see whether they have the end.
    publish(&publishers[0], published);
    world.run(2_000);
    followers
        .iter_mut()
        .for_each(|follower| follower.read(&mut log));
    publishers
        .iter_mut()
        .for_each(|client| receive_all(client, &mut log));
    check(&world, &followers, &log, (fate, published));
    check_presence(&mut world, &mut publishers, &mut followers, &mut log);
}

/// Every server knows the same users: those of all followers, but for a server that has ended.
fn check_presence<H: Handler>(
    world: &mut World<H>,
    publishers: &mut [SimulatedClient],
    followers: &mut [Follower],
    log: &mut Log,
) {
    let everybody = who_is_there(world, publishers);
    assert_eq!(everybody.len(), followers.len(), "{everybody:?}");
    let dead = world.random.random_range(0..3);
    world.kill(dead);
    // Its lease, and the next probe of another.
    world.run(15_000);
    let left = who_is_there(world, publishers);
    let living = followers.iter_mut().filter(|it| it.node != dead);
    let living: Vec<_> = living.collect();
    assert_eq!(left.len(), living.len(), "{left:?}");
    for follower in living {
        follower.read(log);
        for (user, is_there) in &follower.present {
            assert_eq!(*is_there, left.contains(user), "{user}");
        }
        let mut gone = everybody.difference(&left);
        assert!(gone.all(|user| follower.present.get(user) == Some(&false)));
    }
}

/// The users on the topic, of which all living servers must know the same.
fn who_is_there<H: Handler>(
    world: &mut World<H>,
    clients: &mut [SimulatedClient],
) -> BTreeSet<String> {
    let dead = world.dead;
    let asked: Vec<usize> = (0..clients.len())
        .filter(|node| dead != Some(*node))
        .collect();
    for node in &asked {
        let request = json!({"t": "presence_request", "p": {"topics": [TOPIC]}});
        clients[*node].receive_json();
        clients[*node].send(&request);
    }
    world.run(2_000);
    let known = asked.iter().map(|node| {
        let answers = clients[*node].receive_json();
        let answer = answers.iter().find(|it| it["t"] == "presence_response");
        let topic = &answer.expect("an answer")["p"]["topics"][TOPIC];
        let members = topic["members"].as_object().expect("members");
        assert_eq!(topic["connections"], members.len(), "{topic}");
        members.keys().cloned().collect::<BTreeSet<String>>()
    });
    let known: Vec<_> = known.collect();
    assert!(known.iter().all(|users| *users == known[0]), "{known:?}");
    known[0].clone()
}

fn publish(client: &SimulatedClient, number: u64) {
    let payload = json!({"topic": TOPIC, "type": "x", "payload": {"n": number}});
    client.send(&json!({"t": "publish_request", "cid": number.to_string(), "p": payload}));
}

/// The answers to a publisher.
fn receive_all(client: &mut SimulatedClient, log: &mut Log) {
    for message in client.receive_json() {
        let number = message["cid"].as_str().and_then(|cid| cid.parse().ok());
        let Some(number) = number else { continue };
        match message["t"].as_str() {
            Some("publish_response") => {
                let epoch = message["p"]["epoch"].as_str().expect("an epoch").to_owned();
                let offset = message["p"]["offset"].as_u64().expect("an offset");
                log.note((epoch.clone(), offset), number);
                let again = log.acknowledged.insert(number, (epoch, offset));
                assert!(again.is_none(), "{message}");
            }
            Some("error") if message["p"]["code"] == "BROKER_UNAVAILABLE" => {
                log.refused.insert(number);
            }
            Some("error") => {
                assert_eq!(message["p"]["code"], "PUBLISH_UNKNOWN", "{message}");
            }
            _ => {}
        }
    }
}

fn check<H: Handler>(
    world: &World<H>,
    followers: &[Follower],
    log: &Log,
    (fate, published): (Fate, u64),
) {
    let stream = world.stream(TOPIC);
    let (head, _) = stream.last().expect("a publication");
    let end = (json!(format!("{:08x}", head.epoch)), head.offset);
    for follower in followers {
        assert!(follower.is_in, "a follower of server {}", follower.node);
        assert_eq!(follower.position.as_ref(), Some(&end));
    }
    let mut places: HashMap<u64, Vec<(&String, u64)>> = HashMap::new();
    for ((epoch, offset), number) in &log.contents {
        places.entry(*number).or_default().push((epoch, *offset));
    }
    for number in &log.refused {
        assert!(
            !places.contains_key(number),
            "{number} was refused and is somewhere"
        );
    }
    if fate != Fate::Losses {
        let epochs: HashSet<_> = log.contents.keys().map(|(epoch, _)| epoch).collect();
        assert!(epochs.len() <= 1, "{epochs:?}");
        let twice = places.iter().find(|(_, places)| places.len() > 1);
        assert_eq!(twice, None);
        let kept: HashSet<u64> = stream.iter().map(|(position, _)| position.offset).collect();
        for (number, (_, offset)) in &log.acknowledged {
            assert!(
                kept.contains(offset),
                "{number} was acknowledged and is lost"
            );
        }
    }
    assert!(
        log.acknowledged.contains_key(&published),
        "the last one is there"
    );
}
