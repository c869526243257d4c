# The demo, and what a stranger runs first.

.PHONY: demo
demo: all ## the whole job on the bundled model: quantize, verify, generate, bench (about a minute)
	$(Q)sh tests/make/demo.sh

.PHONY: report-check
report-check: all ## the HTML report in a browser, where one is installed
	$(Q)BUILD=$(BUILD) tests/tools/report_check.sh
