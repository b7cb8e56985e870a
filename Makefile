# Everything a person or CI does with Petrel. `make help` lists the targets.

CARGO ?= cargo
PETREL := target/release/petrel
ARGS ?=
SEEDS ?= 1000

ROUNDS ?= 200

.PHONY: help run test check crash interop bench instructions sim release clean

help:           ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run:            ## name server and broker in one process (ARGS="--ephemeral …" for options)
	$(CARGO) run --release --quiet -- server $(ARGS)

test:           ## all tests, the crash test included
	$(CARGO) test --quiet

check:          ## format, lints, documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --quiet

crash:          ## kills loaded brokers ROUNDS times (200) for each way of flushing
	PETREL_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --release --quiet --test crash -- --nocapture

sim:            ## power cuts, kills and failing calls from many seeds (SEEDS=1000; PETREL_SIM_SEED=n replays one)
	PETREL_SIM_SEEDS=$(SEEDS) $(CARGO) test --quiet --profile sim --lib store::simulation

interop: release ## official Java, Go, Python and JavaScript clients against a fresh server; stores to Java brokers and back
	tests/interop/run --petrel $(PETREL) $(ARGS)

bench: release  ## parts, then the whole beside the null broker
	$(CARGO) bench --quiet
	$(PETREL) bench suite $(ARGS)

instructions:   ## counts the instructions of the hot paths (valgrind): benches/INSTRUCTIONS.md
	benches/instructions.sh

release:        ## the executable, target/release/petrel
	$(CARGO) build --release --quiet

clean:          ## removes what was built
	$(CARGO) clean
