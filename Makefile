# The commands of this project. `make` alone lists them.
#
# Everything real is done by cargo and by the `wheelhouse` command; this file
# only says in which order.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help deps build kubernetes images demo demo-down test e2e soak bench-runtime bench-cdn bench-etcd lint book clean

export WHEELHOUSE_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/wheelhouse
CACHE := $(WHEELHOUSE_CACHE_DIR)
TARGET := $(or $(CARGO_TARGET_DIR),target)
WHEELHOUSE := $(TARGET)/release/wheelhouse

# Who is not root builds as themselves and lets sudo run what needs root, with
# the same cache and the same programs.
ifneq ($(shell id -u),0)
SUDO := sudo
AS_ROOT := mkdir -p $(CACHE)/locks $(CACHE)/images && sudo env "PATH=$(PATH)" "WHEELHOUSE_CACHE_DIR=$(CACHE)" \
	$(foreach name,CARGO_HOME RUSTUP_HOME GOPATH GOMODCACHE GOCACHE GOPROXY,$(if $($(name)),"$(name)=$($(name))"))
RUN_TESTS_AS_ROOT := mkdir -p $(CACHE)/locks $(CACHE)/images && \
	CARGO_TARGET_$(shell rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER="sudo --preserve-env env PATH=$(PATH) HOME=/root"
endif

# What is needed beyond Rust and Go, as Debian's packages. Docker brings its own
# containerd and runc, which serve as well and must not be replaced.
PACKAGES := buildah busybox-static catatonit containernetworking-plugins e2fsprogs iproute2 iptables libfaketime mmdebstrap \
	$(if $(shell command -v containerd && command -v ctr),,containerd) $(if $(shell command -v runc),,runc)
# Every test is built with the same features, so that nothing is compiled twice.
TEST := cargo test --locked --no-fail-fast --workspace --features wheelhouse/opentelemetry
TEST_CLUSTERS := $(TEST),wheelhouse-cli/e2e
# The tools that check the tree, compiled by cargo and kept in the cache.
TOOLS := $(CACHE)/tools
CARGO_DENY := 0.20.2
MDBOOK := 0.5.4

help: ## list the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

deps: ## install the Debian packages that are missing (asks apt only if some are)
	@missing=$$(for package in $(PACKAGES); do dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then \
		echo "installing" $$missing "(about a minute)"; \
		$(SUDO) apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

build: ## the command, at target/release/wheelhouse (3 minutes at first, seconds later)
	@echo "building the wheelhouse command (3 minutes at first, seconds later)"
	cargo build --release --locked -p wheelhouse-cli

kubernetes: build ## build Kubernetes into the cache (10 minutes at first, then nothing)
	@echo "building Kubernetes into the cache (10 minutes at first, then nothing)"
	@$(WHEELHOUSE) local prepare

images: deps build ## build the container images that changed (8 minutes at first, then seconds)
	@echo "building the images that changed (8 minutes at first, then seconds)"
	@$(AS_ROOT) $(WHEELHOUSE) image build

# A kubeconfig counts only when it is given on the command line: the one in
# everybody's environment must not make the demo go elsewhere.
ifeq ($(origin KUBECONFIG),command line)
unexport KUBECONFIG
DEMO := --kubeconfig $(KUBECONFIG)
ifeq ($(origin REGISTRY),command line)
DEMO_UP := $(DEMO) --registry $(REGISTRY)
else ifneq ($(filter demo,$(MAKECMDGOALS)),)
$(error a cluster that is not local takes its images from a registry: say which, as in `make demo KUBECONFIG=... REGISTRY=registry.example.com/team`)
endif
endif

demo: deps $(if $(DEMO_UP),build,kubernetes) ## a 3-node cluster with everything running (25 minutes at first, a minute later)
	@echo "bringing up the demo (a minute, and 8 more at first for the images)"
	@$(AS_ROOT) $(WHEELHOUSE) demo up $(DEMO_UP)

demo-down: build ## undo the demo (seconds)
	@echo "taking the demo down (seconds)"
	@$(AS_ROOT) $(WHEELHOUSE) demo down $(DEMO)

test: deps lint ## all but the long tests (about 40 minutes at first, 20 minutes or less later)
	@echo "testing what is pure, what needs an API server, and one cluster (about 40 minutes at first, 20 minutes or less later)"
	cargo build --locked --workspace --features wheelhouse/opentelemetry --bin wheelhouse
	$(TARGET)/debug/wheelhouse local prepare
	$(TEST) --no-run
	@# Trials mostly wait: they run beside the rest, and are shown after it.
	@$(TEST) --tests trials:: >$(TARGET)/trials.log 2>&1 & trials=$$!; failed=0; \
	$(TEST) -- --skip trials:: || failed=1; \
	wait $$trials || failed=1; cat $(TARGET)/trials.log; exit $$failed
	$(RUN_TESTS_AS_ROOT) $(TEST_CLUSTERS) --test smoke

e2e: deps ## every end-to-end scenario on local clusters (more than an hour)
	@echo "running every end-to-end scenario (more than an hour)"
	STEPS=500 OUTAGE_SECONDS=150 $(TEST) --test api_server -- --nocapture random_steps an_api_server_that_was_away
	@# Optimised: a debug build of the operators is what these would wait for.
	FAULTS=all $(TEST) --release --test faults -- --nocapture
	$(RUN_TESTS_AS_ROOT) env CHAOS_SECONDS=600 $(TEST_CLUSTERS) --test smoke --test clusters --test three_nodes --test registry --test volumes --test book --test tutorial --test generated --test workshop --test cdn --test etcd --test chaos -- --nocapture

soak: deps ## millions of decisions, and clusters killed at random moments, for SOAK_MINUTES=10 from SOAK_SEED=1
	@echo "millions of observations through the decisions of Gordon and etcd (15 minutes), then killing clusters at random moments for $${SOAK_MINUTES:-10} minutes"
	WORLDS=100000 cargo test --release --locked -p gordon-operator --test decisions -- --nocapture
	WORLDS=5000 cargo test --release --locked -p etcd-operator --test decisions -- --nocapture
	WORLDS=2000 cargo test --release --locked -p etcd-operator --test keeping -- --nocapture
	$(RUN_TESTS_AS_ROOT) $(TEST_CLUSTERS) --test soak -- --nocapture

bench-runtime: ## operators on different frameworks, measured in turns (an hour; BENCH="--rounds 1 ..." for less)
	@echo "building what is measured and what measures it (5 minutes at first, seconds later), then measuring (an hour)"
	cargo build --release --locked -p wheelhouse-bench-runtime
	$(TARGET)/release/bench-runtime $(BENCH)

bench-cdn: deps build ## the CDN against nginx by hand in the same pods (10 minutes; BENCH="--rounds 1 ..." for less)
	@echo "building what measures (a minute at first), then measuring on a local cluster (10 minutes)"
	cargo build --release --locked -p wheelhouse-bench-cdn
	$(AS_ROOT) $(TARGET)/release/bench-cdn --wheelhouse $(WHEELHOUSE) $(BENCH)

bench-etcd: deps build ## the etcd operator, on a local cluster and with thousands of simulated ones (an hour; BENCH="--rounds 1 ..." for less)
	@echo "building what is measured and what measures it (5 minutes at first, seconds later), then measuring (an hour)"
	cargo build --release --locked -p wheelhouse-bench-etcd
	$(AS_ROOT) $(TARGET)/release/bench-etcd --wheelhouse $(WHEELHOUSE) $(BENCH)

lint: $(TOOLS)/bin/cargo-deny $(TOOLS)/bin/mdbook $(TOOLS)/bin/promtool ## formatting, clippy, licences, docs (10 minutes at first, seconds later)
	@echo "checking formatting, lints, licences and docs (2 minutes at first, seconds later)"
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	$(TOOLS)/bin/cargo-deny --log-level error check licenses bans sources
	$(TOOLS)/bin/mdbook build docs
	$(TOOLS)/bin/promtool test rules operators/*/monitoring/rules.test.yaml

book: $(TOOLS)/bin/mdbook ## the book, at docs/book/index.html (seconds)
	@echo "building the book (seconds)"
	$(TOOLS)/bin/mdbook build docs
	@echo "the book is at docs/book/index.html"

$(TOOLS)/bin/cargo-deny:
	@echo "installing cargo-deny $(CARGO_DENY) into the cache (4 minutes, once)"
	CARGO_TARGET_DIR=$(CACHE)/tools-target cargo install --quiet --locked --root $(TOOLS) cargo-deny@$(CARGO_DENY)
	@rm -rf $(CACHE)/tools-target

$(TOOLS)/bin/mdbook:
	@echo "installing mdbook $(MDBOOK) into the cache (3 minutes, once)"
	CARGO_TARGET_DIR=$(CACHE)/tools-target cargo install --quiet --locked --root $(TOOLS) mdbook@$(MDBOOK) --no-default-features
	@rm -rf $(CACHE)/tools-target

# Debian's, without the service that its package starts.
$(TOOLS)/bin/promtool:
	@echo "fetching promtool into the cache (a minute, once)"
	@mkdir -p $(TOOLS)/bin $(TOOLS)/promtool
	@$(SUDO) apt-get update -qq
	cd $(TOOLS)/promtool && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
	@mv $(TOOLS)/promtool/usr/bin/promtool $@
	@rm -rf $(TOOLS)/promtool

clean: ## remove what was built here; the cache stays (seconds)
	@echo "removing what was built here; the cache in $(CACHE) stays"
	cargo clean
	rm -rf docs/book
