# make test       everything that is tested; needs Rust and the programs of TOOLS below: redis-server 7.0 or newer,
#                 prometheus 2.42 or newer, curl, chromium; THREADS tests at a time, two for each processor
# make quick      what finds most mistakes within a minute after a small change: the unit tests, and the short tests of each room
# make demo       a shop's orders, end to end, with a verdict on every promise
# make dashboards what each query of the dashboards finds on a real Prometheus, under a load with an outage of Redis
# make contract   the OpenAPI document against linters, generated clients and schemathesis; needs Node.js, Go and Python
# make sqs        programs that speak Amazon SQS against a broker on both stores; needs Python, Node.js, Go, Java and Maven;
#                 STEPS="boto3 cli" leaves out the rest, MESSAGES=50000 makes it long
# make clients    the client libraries: their conformance vectors, real brokers that are killed and restarted, every example;
#                 needs Node.js, Go and Python; MESSAGES=100000 LANGUAGES="python go" make it another one
# make static     the static binary of the image, in target/dwell-static; needs rustup and musl-gcc
# make screenshots  the pictures of docs/operate/console.md, of a broker at work, taken anew
# make docs       the documentation as a site with search, in target/site; builds mdbook once, unless it is in PATH
# make lint       format, clippy and documentation, warnings are errors
# make ci         what continuous integration runs
# make races      100,000 messages that are taken, cancelled and rescheduled at the same time, on both stores
# make faults     the long form of the fault stories, a row for each, and then of the random histories: more than 200,000
#                 operations; ROUNDS=50, OPERATIONS=50000 and SEED=7 make it another one
# make histories  random histories alone, a row for each: 1 to 3 brokers on one Redis, behind Sentinel and on a cluster, with
#                 25,000 operations each
# make hand-over  50 rounds in which every broker is replaced by one with a fresh disk while Redis is dead, a row for each story
# make order      the long form of order within a key: 200,000 messages over 1,000 keys while members and Redis die
# make fuzz       each fuzz target for a minute; SECONDS=600 and TARGETS="codec wal" make it another one; needs g++
# make servers    the part of the suite that talks to Redis, on other servers: SERVERS="DIR ...", directories with a redis-server
#                 that has WAITAOF (Redis 7.2 or newer, or a link of that name to valkey-server)
# make deny       licences, duplicates, origins and known vulnerabilities of what dwell is built of; builds cargo-deny once

.PHONY: test quick tools demo docs contract clients sqs dashboards screenshots races faults histories hand-over order static lint fuzz fuzz-lock servers deny bench-build ci

# Most tests wait for something, such as a lease that ends, so more than one for each processor run at a time.
THREADS ?= $(shell expr 2 \* $$(nproc))

test: tools
	cargo test --locked -- --test-threads=$(THREADS)

# Tests that take 20 seconds together on two processors, of every room.
QUICK = conformance::embedded conformance::redis:: sessions verdicts windows identity outage::control config_check
QUICK += http::refusals http::envelope cli::mistakes reference tidy::

quick: tools
	cargo test --locked --lib
	cargo test --locked --test suite -- $(QUICK) --test-threads=$(THREADS)

# Programs that the tests start, each with the Debian package that has it; one a line, sorted.
TOOLS += cc:gcc
TOOLS += chromedriver:chromium-driver
TOOLS += chromium:chromium
TOOLS += curl:curl
TOOLS += prometheus:prometheus
TOOLS += promtool:prometheus
TOOLS += redis-cli:redis-tools
TOOLS += redis-server:redis-server
TOOLS += strace:strace
TOOLS += systemd-analyze:systemd

APT = DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120

# As root on Debian or Ubuntu what is missing is installed; elsewhere it is only named.
tools:
	@for tool in $(TOOLS); do \
	  command -v $${tool%:*} >/dev/null || { missing="$$missing $${tool%:*}"; packages="$$packages $${tool#*:}"; }; \
	done; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && $(APT) update && \
	  $(APT) install -y --no-install-recommends $$packages </dev/null; } || \
	{ echo "make: needed in PATH:$$missing (Redis is 7.0 or newer); install what is missing and try again" >&2; exit 1; }

demo:
	cargo run --locked --release -- demo

# Debian's package starts a Prometheus of its own on port 9090; this one has another port.
dashboards: tools
	@bash -o pipefail -c 'cargo test --quiet --locked --test suite -- observability::loaded --nocapture | grep "^|"'

# Its short form, without these tools, is among the unit tests: src/api/http/document.rs. STEPS="lint clients" leaves out
# the rest.
contract:
	tests/contract/run $(STEPS)

sqs:
	tests/sqs/run $(STEPS)

LANGUAGES ?= python typescript go shell

clients: tools
	cargo build --locked --quiet --bin dwell
	DWELL_BIN=target/debug/dwell clients/run $(LANGUAGES)

RACES ?= 100000

races: tools
	DWELL_RACES=$(RACES) cargo test --locked --release --test suite -- races:: --nocapture --test-threads=1

ROUNDS ?= 20

faults: tools
	@echo "| fault | rounds | acknowledged | lost | again after the ack | recovered | repeated | p99 buffered, ms | slowest, ms | back in, s |"
	@echo "|---|---|---|---|---|---|---|---|---|---|"
	@DWELL_ROUNDS=$(ROUNDS) $(if $(SEED),DWELL_SEED=$(SEED)) bash -o pipefail -c 'cargo test --quiet --locked --release --test suite -- faults:: --skip redis_faults --nocapture --test-threads=1 | sed -un "s/^[^|]*| /| /p"'
	@$(MAKE) --no-print-directory histories

OPERATIONS ?= 25000

histories: tools
	@echo "| history | operations | acknowledged | pushed | lost | again after the ack | undone | exempt | exempt, again | faults |"
	@echo "|---|---|---|---|---|---|---|---|---|---|"
	@DWELL_OPERATIONS=$(OPERATIONS) $(if $(SEED),DWELL_SEED=$(SEED)) bash -o pipefail -c 'cargo test --quiet --locked --release --test suite -- histories:: --nocapture --test-threads=1 | sed -un "s/^[^|]*| /| /p"'

hand-over: tools
	@echo "| story | rounds | pods replaced | accepted | lost | again after the ack |"
	@echo "|---|---|---|---|---|---|"
	@DWELL_ROUNDS=50 bash -o pipefail -c 'cargo test --quiet --locked --test suite -- hand_over::rounds --nocapture --test-threads=1 | sed -un "s/^[^|]*| /| /p"'

ON_SERVERS = conformance random_ops chain groups:: delivery ordered outage:: redis_ doctor deploy::redis

servers: tools
	@[ -n "$(SERVERS)" ] || { echo 'make: SERVERS="DIR ..." is needed: directories that hold a redis-server' >&2; exit 1; }
	@for server in $(SERVERS); do \
	  "$$server/redis-server" --version && PATH="$$server:$$PATH" DWELL_WAITAOF=1 cargo test --locked --test suite -- $(ON_SERVERS) || exit 1; \
	done

MESSAGES ?= 200000
KEYS ?= 1000

order: tools
	DWELL_MESSAGES=$(MESSAGES) DWELL_KEYS=$(KEYS) $(if $(SEED),DWELL_SEED=$(SEED)) cargo test --quiet --locked --release --test suite -- ordered::fleet --nocapture

static:
	deploy/build-static.sh target/dwell-static

screenshots: tools
	DWELL_SCREENSHOTS=$(CURDIR)/docs/operate cargo test --quiet --locked --test suite -- console::pictures

lint:
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

MDBOOK_VERSION = 0.5.4
MDBOOK_BUILT = target/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
MDBOOK := $(or $(shell command -v mdbook),$(MDBOOK_BUILT))

$(MDBOOK_BUILT):
	cargo install --locked --version $(MDBOOK_VERSION) --no-default-features --features search --root target/tools/mdbook-$(MDBOOK_VERSION) mdbook

docs: $(filter target/%,$(MDBOOK))
	$(MDBOOK) build docs

SECONDS ?= 60

fuzz: TOOLS += g++:g++
fuzz: tools
	SECONDS_EACH=$(SECONDS) fuzz/run $(TARGETS)

# After a change of Cargo.lock: the fuzzer is built of the same crates.
fuzz-lock:
	cp Cargo.lock fuzz/Cargo.lock
	cargo metadata --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null

DENY = 0.20.2
CARGO_DENY = target/tools/cargo-deny-$(DENY)/bin/cargo-deny --locked

$(firstword $(CARGO_DENY)):
	cargo install --locked --debug --version $(DENY) --root target/tools/cargo-deny-$(DENY) cargo-deny

# A crate that is there twice on other systems only is in Cargo.lock all the same, and so among what is skipped.
# The advisories are on GitHub. Where it is not reached they are not checked, and that is said.
deny: $(firstword $(CARGO_DENY))
	$(CARGO_DENY) check --hide-inclusion-graph --allow unmatched-skip bans licenses sources
	@if $(CARGO_DENY) fetch db; then $(CARGO_DENY) check --disable-fetch advisories; \
	else echo "make: NOT CHECKED: known vulnerabilities, since github.com is not reached" >&2; fi

# As the tests are built: this shows that the benches build, and costs continuous integration a minute instead of seven.
bench-build:
	cargo bench --locked --no-run --profile dev

ci:
	.ci/run
