# The demo, and what a stranger runs first.

.PHONY: demo
demo: all ## the whole job on the bundled model: quantize, verify, generate, bench (about a minute)
	$(Q)sh tests/make/demo.sh
