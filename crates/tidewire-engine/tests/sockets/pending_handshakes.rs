//! Many connections that say nothing, and what becomes of those from other addresses.

use crate::common;

use common::simulated::{SimulatedClient, serve};
use common::{Opening, Said, assert_settled, certified, config, start, tcp, wait_until};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use tidewire_engine::Config;
use tidewire_engine::apps::Sink;
use tidewire_net::Handler;
use tidewire_testkit::simulation::{ClientEnd, Driver};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn simulated(config: Config) -> Driver<impl Handler> {
    serve(config, |_| Sink).0
}

fn from(driver: &mut Driver<impl Handler>, address: IpAddr) -> ClientEnd {
    driver
        .network()
        .connect_from(0, SocketAddr::new(address, 40_000))
}

fn is_in(client: &mut SimulatedClient) -> bool {
    let said = client.receive();
    matches!(&said[..], [Said::Text(ready)] if ready.contains("server_ready"))
}

#[test]
fn a_thousand_silent_handshakes_a_second_from_one_address_delay_nobody_else() {
    let mut driver = simulated(config());
    let mut silent = Vec::new();
    let mut newcomers: Vec<(u64, SimulatedClient)> = Vec::new();
    for now_ms in 0..5_000 {
        driver.run_until(now_ms);
        silent.extend((0..2).map(|_| from(&mut driver, ATTACKER)));
        if now_ms % 100 == 0 {
            let address = [10, 0, 0, (now_ms / 100) as u8];
            let end = from(&mut driver, IpAddr::from(address));
            newcomers.push((now_ms, SimulatedClient::open(end, &[])));
        }
        newcomers.retain_mut(|(came_ms, client)| {
            let late_ms = now_ms - *came_ms;
            assert!(late_ms < 5, "{late_ms} ms");
            !is_in(client)
        });
    }
    assert!(silent.len() > 9_000);
}

#[test]
fn newcomers_do_not_wait_for_attackers_from_many_addresses() {
    let mut driver = simulated(config());
    // Together they take all the room there is.
    let mut silent = Vec::new();
    for number in 1..=20 {
        let attacker = IpAddr::from([127, 0, 1, number]);
        silent.extend((0..200).map(|_| from(&mut driver, attacker)));
    }
    driver.run_until(10);
    let end = from(&mut driver, IpAddr::from([10, 0, 0, 1]));
    let mut newcomer = SimulatedClient::open(end, &[]);
    driver.run_until(20);
    assert!(is_in(&mut newcomer));
}

#[test]
fn an_ipv6_network_is_one_address() {
    let mut config = config();
    config.limits.handshakes_per_address_max = 2;
    let mut driver = simulated(config);
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let _silent = ["2001:db8::1", "2001:db8::2"].map(|text| from(&mut driver, address(text)));
    let mut same = SimulatedClient::open(from(&mut driver, address("2001:db8::3")), &[]);
    let mut other = SimulatedClient::open(from(&mut driver, address("2001:db8:0:1::3")), &[]);
    driver.run_until(100);
    assert!(!is_in(&mut same));
    assert!(is_in(&mut other));
    // One of its own network makes room when it has had half a second.
    driver.run_until(600);
    assert!(is_in(&mut same));
}

#[test]
fn parked_handshakes_have_the_same_timeout() {
    let mut config = config();
    config.limits.handshakes_per_address_max = 1;
    config.limits.handshake_timeout_ms = 300;
    let mut driver = simulated(config);
    let _silent = from(&mut driver, ATTACKER);
    let parked = from(&mut driver, ATTACKER);
    driver.run_until(290);
    assert_eq!(parked.receive(), b"");
    driver.run_until(320);
    let said = String::from_utf8(parked.receive()).expect("a text");
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
}

/// A socket from `ATTACKER`.
fn attack(address: SocketAddr) -> TcpStream {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::new(ATTACKER, 0).into())
        .expect("an address of the loopback");
    socket.connect(&address.into()).expect("the server listens");
    socket.into()
}

#[test]
fn silent_connections_leave_others_in_over_tls() {
    let (files, trust, _folder) = certified();
    let mut config = Config {
        tls: Some(files),
        ..config()
    };
    // The silent ones would have to wait for ever.
    config.limits.handshake_timeout_ms = 600_000;
    let server = start(config, Sink);
    let handle = server.handle();
    let silent: Vec<_> = (0..1_000).map(|_| attack(server.address())).collect();
    wait_until("all accepted", || {
        handle.counters().connections_accepted == 1_000
    });
    let evicted = handle.counters().handshakes_evicted;
    let client = Opening::new(server.address()).tls(&trust).open();
    // Had it waited for its turn, most of the others would have had to go before.
    let now = handle.counters();
    assert!(
        now.handshakes_evicted <= evicted + 512 && now.connections_open == 1,
        "{now:?}"
    );
    drop((client, silent));
    wait_until("all gone", || handle.counters().handshakes_parked == 0);
    assert_settled(&handle);
}

#[test]
fn what_is_parked_makes_room_before_it_hides_the_others() {
    let mut config = config();
    config.limits.handshakes_per_address_max = 1;
    config.limits.handshakes_parked_max = 4;
    config.limits.handshake_timeout_ms = 600_000;
    let server = start(config, Sink);
    let handle = server.handle();
    // More than may wait: the system's queue holds the rest until those before have had their time.
    let silent: Vec<_> = (0..40).map(|_| attack(server.address())).collect();
    // They go on making room for each other, so that the figures hold at every moment, but not for long.
    wait_until("all accepted", || {
        let now = handle.counters();
        assert!(now.handshakes_in_progress <= 1 && now.handshakes_parked <= 4);
        now.connections_accepted == 40 && now.handshakes_evicted >= 35
    });
    drop(silent);
    drop(tcp(server.address()));
    assert_settled(&handle);
}
