//! The lab against servers over real sockets, honest and dishonest ones, and its reports.

#[path = "../account/mod.rs"]
mod account;
#[path = "../broadcast/mod.rs"]
mod broadcast;
#[path = "../common/mod.rs"]
mod common;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../http_conduct/mod.rs"]
mod http_conduct;
#[path = "../http_service/mod.rs"]
mod http_service;
#[path = "../schema/mod.rs"]
mod schema;
#[path = "../secure/mod.rs"]
mod secure;

mod by_count;
mod censoring;
mod ended;
mod expected;
mod fan_out;
mod generated;
mod http2;
mod http2_faults;
mod http_faults;
mod layers;
mod lies;
mod load;
mod load_contents;
mod load_hosts;
mod load_judgement;
mod load_users;
mod load_ways;
mod loading;
mod pace;
mod proxies;
mod redirects;
mod report;
mod scenario_schema;
mod test_server;
mod verdicts;
mod websocket_faults;
