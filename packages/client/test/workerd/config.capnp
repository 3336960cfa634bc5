using Workerd = import "/workerd/workerd.capnp";

# The same Worker as of two dates: what the runtime offers a Worker depends on the date that it names.
const config :Workerd.Config = (
  services = [
    (name = "today", worker = .today),
    (name = "older", worker = .older),
    (name = "internet", network = (allow = ["public", "private", "local"])),
  ],
  sockets = [
    (name = "today", address = "127.0.0.1:0", http = (), service = "today"),
    (name = "older", address = "127.0.0.1:0", http = (), service = "older"),
  ],
);

const today :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "built/worker.js")],
  compatibilityDate = "2026-11-01",
  bindings = [(name = "ADDRESS", fromEnvironment = "TIDEWIRE_ADDRESS")],
);

const older :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "built/worker.js")],
  compatibilityDate = "2024-01-01",
  bindings = [(name = "ADDRESS", fromEnvironment = "TIDEWIRE_ADDRESS")],
);
