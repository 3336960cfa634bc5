//! Pages that have their own name resolved to the server, and the names that the server answers to.

use crate::common;

use common::{Opening, SECRET, assert_settled, config, start, token};
use serde_json::json;
use tidewire_engine::apps::Echo;
use tidewire_engine::auth::{AuthConfig, KeyMaterial};
use tidewire_engine::{Config, HostPolicy, OriginPolicy, Server, TrustedProxies};

fn opening(server: &Server, host: &str, origin: Option<&str>) -> Opening {
    let mut opening = Opening::new(server.address());
    opening.host = host.to_owned();
    match origin {
        Some(origin) => opening.header("Origin", origin),
        None => opening,
    }
}

#[track_caller]
fn assert_refused(opening: &Opening, name: &str) {
    let (status, said) = opening.refused();
    assert_eq!(status, 421, "{said}");
    let words = format!("host {name} is not allowed; add it to the option allow_host");
    assert!(said.ends_with(&words), "{said}");
}

#[test]
fn a_page_that_rebinds_its_name_to_loopback_is_refused() {
    let server = start(config(), Echo);
    let origin = "http://evil.example:5006";
    assert_refused(
        &opening(&server, "evil.example:5006", Some(origin)),
        "evil.example",
    );
    for host in [
        "localhost:5006",
        "app.localhost:5006",
        "127.0.0.1:5006",
        "[::1]:5006",
    ] {
        let origin = format!("http://{host}");
        opening(&server, host, Some(&origin)).open();
    }
    // No page says nothing of where it comes from.
    opening(&server, "evil.example:5006", None).open();
    let counters = assert_settled(&server.handle());
    assert_eq!(
        (counters.host_rejections, counters.origin_rejections),
        (1, 0)
    );
}

#[test]
fn pages_that_are_expected_may_use_any_name() {
    let page = "https://app.example";
    let with = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        start(config, Echo)
    };
    // By their origin.
    let listed = with(|config| {
        config.origins = OriginPolicy::Listed(vec!["https://app.example".to_owned()]);
    });
    opening(&listed, "app.example", Some(page)).open();
    assert_refused(
        &opening(&listed, "evil.example", Some("https://evil.example")),
        "evil.example",
    );
    let any = with(|config| config.origins = OriginPolicy::Any);
    opening(&any, "app.example", Some(page)).open();
    // Through a proxy, whose header lines no page can write.
    let proxied = with(|config| {
        config.proxies = TrustedProxies {
            networks: vec!["127.0.0.1".parse().expect("an address")],
            ..TrustedProxies::default()
        };
    });
    opening(&proxied, "app.example", Some(page))
        .header("X-Forwarded-For", "192.0.2.1")
        .open();
    assert_refused(&opening(&proxied, "app.example", Some(page)), "app.example");
    // With a token, which a page of another name does not have.
    let auth = with(|config| {
        let material = KeyMaterial::Hs256(SECRET.to_vec());
        config.auth = Some(AuthConfig::new(material));
    });
    opening(&auth, "app.example", Some(page))
        .header("Authorization", format!("Bearer {}", token(json!({}))))
        .open();
}

#[test]
fn a_list_holds_for_everybody() {
    let names = ["app.example", "*.apps.example"].map(str::to_owned);
    let server = start(
        Config {
            hosts: HostPolicy::from_names(names.to_vec()).expect("names"),
            ..config()
        },
        Echo,
    );
    for host in [
        "app.example",
        "one.apps.example:81",
        "127.0.0.1:5006",
        "localhost",
    ] {
        opening(&server, host, None).open();
        opening(&server, host, Some(&format!("http://{host}"))).open();
    }
    for host in ["evil.example", "apps.example"] {
        assert_refused(&opening(&server, host, None), host);
    }
    let server = start(
        Config {
            hosts: HostPolicy::Any,
            ..config()
        },
        Echo,
    );
    opening(&server, "evil.example", Some("http://evil.example")).open();
}
