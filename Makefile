# Everything a person does with this project, by name. Plain commands: nothing here is hidden.
.DEFAULT_GOAL := help
.PHONY: help build run demo run-skills test test-postgres check tree judge-map bench clients simulate mutants fuzz soak kills small-machine powercuts static install layout documents uninstall dist deb

# Where 'make install' puts things; DESTDIR is put before it, for packagers.
PREFIX ?= $(HOME)/.local
DESTDIR ?=
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
# Linux links everything into the program, the C library too; macOS has no static C library. Where the C library can read
# them (glibc 2.36), the places to relocate are packed.
PACKED := $(shell getconf GNU_LIBC_VERSION 2>/dev/null | awk '$$1 == "glibc" && $$2 + 0 >= 2.36 {print "-C link-arg=-Wl,-z,pack-relative-relocs"}')
STATIC_FLAGS := $(if $(findstring linux,$(HOST)),-C target-feature=+crt-static $(PACKED))
STATIC := target/static/$(HOST)/dist
# What the installed program may weigh: 15.5 MiB, with the C library; whoever needs more makes room first.
SIZE_MAX := 16252928
DIST := svc-$(VERSION)-$(HOST)
DEB_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(firstword $(subst -, ,$(HOST)))))
# The folder of the program as the systemd unit names it.
UNIT_BINDIR ?= $(PREFIX)/bin
ROOT = $(DESTDIR)$(PREFIX)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## target/release/svc, without the marketplace and without what only an installation needs
	cargo build --release --locked --bin svc

run: build ## start the daemon in a demo project and rehearse a small team: no key, no network
	./target/release/svc rehearse --project demo

demo: build ## a guided tour of two minutes in a temporary project: no key, no network
	./target/release/svc demo

run-skills: ## start the skills marketplace with its seeds; SKILLS_API_KEY is "change-me" unless set
	cargo build --release --locked -p svc-skills
	@mkdir -p demo
	SKILLS_API_KEY=$${SKILLS_API_KEY:-change-me} ./target/release/svc-skills serve --addr 127.0.0.1:31416 --db demo/skills.db

# Three tests for each core, as most of them wait for programs most of the time.
test: export NEXTEST_TEST_THREADS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3)))
test: ## all tests
	cargo nextest run --locked || { cargo nextest --version >/dev/null 2>&1 && exit 1 || cargo test --locked; }

test-postgres: ## the marketplace on a real PostgreSQL, where one is installed
	cargo nextest run --locked -p svc-skills -E 'test(/^(postgres|postgres_wire|migrate)::/) | test(/store::postgres/)'

check: tree ## formatting, lints, no async runtime in the tree
	cargo clippy --locked --all-targets -- -D warnings

tree: ## what 'make check' asks that needs no compiler
	cargo fmt --check
	cargo metadata --locked --format-version 1 --manifest-path tests/fuzz/Cargo.toml >/dev/null
	tests/no-async-runtime

recall: ## what a successor knows of 30 planted facts: ten shapes of sessions, two banks of phrases, as a table
	cargo nextest run --locked -p svc --test it --no-capture recall::a_successor

judge-map: ## is the file that a commit changed in the map of its message? REPOSITORIES='folder..', with history
	cargo build --locked --release -p svc-map --example ask-map
	tests/map/judge.py $(REPOSITORIES)

bench: ## speed and memory, as a table with the machine
	cargo bench --locked --profile dist --bench daemon --bench lines --bench indexer --bench skills

clients: ## what the typed clients are made of, and what is made of it, after a change of the API
	UPDATE_EXPECT=1 cargo nextest run --locked -p svc --test it clients::the_descriptions
	clients/generate

simulate: export HOURS ?= 100
simulate: export RUST_BACKTRACE = 0
simulate: ## the whole daemon on a virtual clock for HOURS=100, on every core; SEED=.. STEPS=.. plays one again
	@SEED=$(SEED) STEPS=$(STEPS) FIRST=$(FIRST) cargo bench --locked --profile release -p svc --bench simulate

mutants: ## plant the bugs of tests/simulate/mutants.txt one at a time, and see which tests find them
	tests/simulate/mutate target/mutants

fuzz: SECONDS ?= 60
fuzz: ## each parser of foreign bytes for SECONDS=60, coverage-guided; TARGET=.. for one of them
	tests/fuzz/run $(SECONDS) $(TARGET)

soak: MINUTES ?= $(if $(HOURS),$(shell echo $$(($(HOURS) * 60))),60)
soak: build ## mixed work of all features for MINUTES=60 or HOURS=..; a table and a picture in target/soak
	tests/soak/soak.py --svc target/release/svc --minutes $(MINUTES) --out target/soak

kills: export COUNT ?= 1000
kills: ## kill -9 of the daemon COUNT=1000 times while ten agents work, Codex and OpenCode too (tests/real/setup)
	cargo test --locked -p svc --test it -- --nocapture storm::

small-machine: build ## six agents of 300 MB, and one without end, in 1024 and 512 MB on two kernels in emulation (tests/real/setup-vm)
	tests/vm/small target/release/svc

powercuts: STATES ?= 2000
powercuts: build ## STATES=2000 states of a real file system that a power cut could leave (needs root)
	cargo build --release --locked -p svc-skills
	tests/powercuts/cuts.py --svc target/release/svc --market target/release/svc-skills --states $(STATES)

# The target is named although it is this machine's, so that the flags reach the program and not the
# build scripts and macros.
static: ## the programs without shared libraries (Linux), in target/static
	RUSTFLAGS="$(STATIC_FLAGS)" cargo build --profile dist --locked --bins --target $(HOST) --target-dir target/static
	@size=$$(wc -c <$(STATIC)/svc); [ "$$size" -le $(SIZE_MAX) ] || \
		{ echo "$(STATIC)/svc has $$size bytes, above $(SIZE_MAX): make it smaller first" >&2; exit 1; }

install: static ## svc, manual pages, completions and the systemd user units below PREFIX (~/.local)
	@$(MAKE) --no-print-directory layout
	@echo "installed $(ROOT)/bin/svc, also as svc-cli ($(VERSION)); next: svc demo"

# Files of an installation below DESTDIR and PREFIX, from a finished 'make static'. The second name is for systems
# where another program is called svc: daemontools and BusyBox have one.
layout:
	install -d "$(ROOT)/bin" "$(ROOT)/share/man/man1" "$(ROOT)/share/systemd/user"
	install -m 755 $(STATIC)/svc $(STATIC)/svc-skills "$(ROOT)/bin/"
	ln -sf svc "$(ROOT)/bin/svc-cli"
	$(STATIC)/svc man --quiet --into "$(ROOT)/share/man/man1"
	install -d "$(ROOT)/share/bash-completion/completions" "$(ROOT)/share/zsh/site-functions"
	install -d "$(ROOT)/share/fish/vendor_completions.d"
	$(STATIC)/svc completions bash > "$(ROOT)/share/bash-completion/completions/svc"
	$(STATIC)/svc completions zsh > "$(ROOT)/share/zsh/site-functions/_svc"
	$(STATIC)/svc completions fish > "$(ROOT)/share/fish/vendor_completions.d/svc.fish"
	ln -sf svc "$(ROOT)/share/bash-completion/completions/svc-cli"
	for unit in svc@ svc-skills; do \
		sed 's|@BINDIR@|$(UNIT_BINDIR)|' data/systemd/$$unit.service.in > "$(ROOT)/share/systemd/user/$$unit.service" || exit 1; \
	done
	install -d "$(ROOT)/share/svc/apparmor"
	sed 's|@BINDIR@|$(UNIT_BINDIR)|; s|%h/|@{HOME}|' data/install/apparmor.in > "$(ROOT)/share/svc/apparmor/svc"

# README and all that it leads to, below DESTDIR and PREFIX.
documents:
	install -d "$(ROOT)/share/doc/svc/docs/screenshots" "$(ROOT)/share/doc/svc/docs/develop" \
		"$(ROOT)/share/doc/svc/docs/tutorials"
	install -m 644 *.md LICENSE "$(ROOT)/share/doc/svc/"
	install -m 644 docs/*.md "$(ROOT)/share/doc/svc/docs/"
	install -m 644 docs/develop/*.md "$(ROOT)/share/doc/svc/docs/develop/"
	install -m 644 docs/tutorials/* "$(ROOT)/share/doc/svc/docs/tutorials/"
	install -m 644 docs/screenshots/* "$(ROOT)/share/doc/svc/docs/screenshots/"

uninstall: ## remove what 'make install' put below PREFIX; projects keep their .svc
	rm -f "$(ROOT)/bin/svc" "$(ROOT)/bin/svc-cli" "$(ROOT)/bin/svc-skills" "$(ROOT)/share/man/man1/svc.1" "$(ROOT)"/share/man/man1/svc-*.1
	rm -f "$(ROOT)/share/bash-completion/completions/svc" "$(ROOT)/share/zsh/site-functions/_svc"
	rm -f "$(ROOT)/share/bash-completion/completions/svc-cli"
	rm -f "$(ROOT)/share/fish/vendor_completions.d/svc.fish" "$(ROOT)/share/systemd/user/svc@.service"
	rm -f "$(ROOT)/share/systemd/user/svc-skills.service" "$(ROOT)/share/svc/apparmor/svc"

dist: static ## an archive of the same, target/dist/svc-VERSION-TARGET.tar.gz; unpack it below any PREFIX
	rm -rf target/dist/$(DIST)
	$(MAKE) --no-print-directory layout DESTDIR=target/dist/$(DIST) PREFIX= UNIT_BINDIR=%h/.local/bin
	$(MAKE) --no-print-directory documents DESTDIR=target/dist/$(DIST) PREFIX=
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$$(git log -1 --format=%ct)" \
		-C target/dist -czf target/dist/$(DIST).tar.gz $(DIST)
	cd target/dist && sha256sum $(DIST).tar.gz | tee $(DIST).tar.gz.sha256
	echo $(VERSION) > target/dist/latest
	install -m 755 data/install/install.sh target/dist/install.sh

deb: static ## the same as a Debian package, target/dist/svc_VERSION_ARCH.deb
	rm -rf target/deb
	$(MAKE) --no-print-directory layout DESTDIR=target/deb PREFIX=/usr UNIT_BINDIR=/usr/bin
	install -d target/deb/usr/share/doc/svc
	install -m 644 LICENSE target/deb/usr/share/doc/svc/copyright
	data/install/make-deb target/deb $(VERSION) $(HOST) $$(git log -1 --format=%ct) \
		target/dist/svc_$(VERSION)_$(DEB_ARCH).deb
