# Everything a person does with this project, by name. Plain commands: nothing here is hidden.
.DEFAULT_GOAL := help
.PHONY: help build run test check bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the release binary, target/release/svc
	cargo build --release --locked

run: build ## start the daemon in a demo project and rehearse a small team: no key, no network
	./target/release/svc rehearse --project demo

test: ## all tests
	cargo nextest run --locked || { cargo nextest --version >/dev/null 2>&1 && exit 1 || cargo test --locked; }

check: ## formatting, lints, no async runtime in the tree
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	tests/no-async-runtime

bench: ## speed and memory, as a table with the machine
	cargo bench --locked --bench daemon
