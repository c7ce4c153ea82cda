# Everything a person does with this project, by name. Plain commands: nothing here is hidden.
.DEFAULT_GOAL := help
.PHONY: help build run run-skills test test-postgres check bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the release binary, target/release/svc
	cargo build --release --locked

run: build ## start the daemon in a demo project and rehearse a small team: no key, no network
	./target/release/svc rehearse --project demo

run-skills: build ## start the skills marketplace with its seeds; SKILLS_API_KEY is "change-me" unless set
	@mkdir -p demo
	SKILLS_API_KEY=$${SKILLS_API_KEY:-change-me} ./target/release/svc-skills serve --addr 127.0.0.1:31416 --db demo/skills.db

test: ## all tests
	cargo nextest run --locked || { cargo nextest --version >/dev/null 2>&1 && exit 1 || cargo test --locked; }

test-postgres: ## the marketplace on a real PostgreSQL, where one is installed
	cargo nextest run --locked --features postgres -E 'binary(skills_postgres) | test(/postgres/)'

check: ## formatting, lints, no async runtime in the tree
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --all-targets --features postgres -- -D warnings
	tests/no-async-runtime

bench: ## speed and memory, as a table with the machine
	cargo bench --locked --bench daemon
