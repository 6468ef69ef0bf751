# The targets set up what they need. Required are git, make and Python >= 3.11 with venv.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Programs that the tests use in addition to Python: a broker, cyclictest for a comparison with the real-time loop, a C
# compiler with headers for the simulation of NI's library, systemd's tools to check the units, openssl to make
# certificates, and a browser for the panel, which needs no screen.
TEST_PROGRAMS := mosquitto mosquitto_pub cyclictest gcc systemd-analyze openssl chromium-headless-shell
TEST_PACKAGES := mosquitto mosquitto-clients rt-tests gcc libc6-dev systemd openssl chromium-headless-shell

# Where "make install" puts it. A package is built with PREFIX=/usr DESTDIR=/path/to/package.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
# What it can do beyond running a rig: cluster compiled-circuits embedded-broker export modbus ni own-components panel serial studies
EXTRAS ?=
LIB := $(PREFIX)/lib/hilserver
SHARE := $(PREFIX)/share/hilserver
DOC := $(PREFIX)/share/doc/hilserver
UNITS := $(PREFIX)/lib/systemd/system

.DEFAULT_GOAL := help
.PHONY: help demo panel quick test chaos bytecode check docs format lock clean program test-programs python install install-program install-service uninstall deb

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) program  ## run the lift circuit against a simulated rig, live in this terminal
	$(BIN)/hilserver demo

panel: $(STAMP) program  ## run the same until Ctrl-C, to operate it in the browser
	$(BIN)/hilserver demo --stay

# Modules, and the tests in each, run in random order. The seed is printed; PYTEST="--random-order-seed=7" repeats an
# order. Bytecode is stored even if the environment says otherwise: several hundred processes import the same modules.
RUN_TESTS = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --random-order
# Several modules at a time: two more than there are processors, because tests in real time mostly wait.
WORKERS ?= $(shell expr $$(nproc) + 2)
TOGETHER = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

quick: $(STAMP) program  ## run the tests that need neither server, clock nor browser, nor many seconds
	$(RUN_TESTS) $(TOGETHER) -m "not realtime and not browser and not slow" $(PYTEST)

# If the program has to be compiled, the tests are prepared beside that. With --program the first test waits for it.
test:  ## run all tests; PYTEST="-k relief" passes options on
	@$(MAKE) --no-print-directory -j 2 $(STAMP) test-programs
	@$(IS_BUILT) || { $(MAKE) --no-print-directory program & $(MAKE) --no-print-directory bytecode; }
	$(RUN_TESTS) --program $(TOGETHER) $(PYTEST)

IS_BUILT = $(BIN)/python -c "from hilserver.compiler.loading import is_built; raise SystemExit(not is_built())"

# Stores the bytecode of the tests, whose assertions pytest rewrites: otherwise each of its workers would do it.
bytecode: $(STAMP)
	@$(RUN_TESTS) --collect-only -q >/dev/null 2>&1 || true

CHAOS ?= 2 min
SEED ?= 1
chaos: $(STAMP) test-programs program  ## inject faults into a server at random times; CHAOS="1 h" SEED=7 for an hour of others
	$(RUN_TESTS) tests/service/test_soak.py -k random_times --chaos "$(CHAOS)" --soak-seed $(SEED) $(PYTEST)

# Compiles the program, once for a version of its sources, about a minute; and Python's bytecode, which Python does not
# store everywhere: several hundred processes of the tests would each compile the modules that they import.
program: $(STAMP)
	@$(BIN)/python -m hilserver.compiler
	@$(BIN)/python -m compileall -q hilserver drivers

check: $(STAMP)  ## check style, types, layers and documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(MAKE) --no-print-directory docs

# Uses nothing from the network. (The variable suppresses a notice of the theme about its future.)
docs: $(STAMP)  ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(STAMP)  ## format the source code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Debian-style: program in PREFIX, configuration in SYSCONFDIR; starts nothing and does not touch an existing
# configuration.
install: install-program install-service  ## install program and systemd units; set EXTRAS, PREFIX, DESTDIR as needed
	@echo "Installed. The next steps are described in $(DOC)/service.md; on this computer, first run:"
	@echo "    systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"

# A separate environment with the locked versions and the compiled program, and with the paths that apply where it will
# run. (build/ is removed because a wheel would contain what an earlier version has left there.)
install-program: $(STAMP) program
	rm -rf build "$(DESTDIR)$(LIB)"
	mkdir -p build
	$(BIN)/python systemd/locked.py $(EXTRAS) >build/requirements.lock
	$(BIN)/python -m build --wheel --no-isolation --outdir build/wheel . >/dev/null
	$(PYTHON) -m venv --without-pip "$(DESTDIR)$(LIB)"
	$(BIN)/python -m pip --python "$(DESTDIR)$(LIB)/bin/python" install --quiet --disable-pip-version-check --no-compile \
	    --require-hashes -r build/requirements.lock
	$(BIN)/python -m pip --python "$(DESTDIR)$(LIB)/bin/python" install --quiet --disable-pip-version-check --no-compile \
	    --no-deps --no-index --find-links build/wheel hilserver
	rm -f "$(DESTDIR)$(LIB)"/bin/[Aa]ctivate*
	find "$(DESTDIR)$(LIB)/bin" -type f -exec sed -i '1s|^#!$(DESTDIR)/|#!/|' {} +
	sed -i "s|$(DESTDIR)/|/|" "$(DESTDIR)$(LIB)/pyvenv.cfg"
	"$(DESTDIR)$(LIB)/bin/python" -m compileall -q -s "$(DESTDIR)" -p / "$(DESTDIR)$(LIB)/lib"
	install -d "$(DESTDIR)$(PREFIX)/bin"
	ln -sf ../lib/hilserver/bin/hilserver "$(DESTDIR)$(PREFIX)/bin/hilserver"

install-service:
	install -d "$(DESTDIR)$(UNITS)" "$(DESTDIR)$(SHARE)/drop-ins" "$(DESTDIR)$(SHARE)/mosquitto" "$(DESTDIR)$(DOC)"
	for unit in hilserver.service hilserver@.service; do \
	    sed -e 's|/usr/bin/hilserver|$(PREFIX)/bin/hilserver|' -e 's|/usr/share/|$(PREFIX)/share/|' \
	        -e 's|/etc/hilserver|$(SYSCONFDIR)/hilserver|' systemd/$$unit >"$(DESTDIR)$(UNITS)/$$unit" || exit 1; done
	install -D -m 644 systemd/hilserver.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/hilserver.conf"
	install -d "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d"
	sed -e 's|/etc/hilserver|$(SYSCONFDIR)/hilserver|' systemd/hilserver.tmpfiles \
	    >"$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/hilserver.conf"
	install -m 644 systemd/drop-ins/*.conf "$(DESTDIR)$(SHARE)/drop-ins"
	install -m 644 systemd/mosquitto/hilserver.conf systemd/mosquitto/acl "$(DESTDIR)$(SHARE)/mosquitto"
	install -m 755 systemd/mosquitto/make-certificates "$(DESTDIR)$(SHARE)/mosquitto"
	install -m 644 README.md SECURITY.md CHANGELOG.md LICENSE docs/*.md "$(DESTDIR)$(DOC)"
	install -d "$(DESTDIR)$(SHARE)/config/rigs" "$(DESTDIR)$(SHARE)/config/circuits/parts" "$(DESTDIR)$(SHARE)/config/cycles" "$(DESTDIR)$(SHARE)/config/mechanisms" "$(DESTDIR)$(SHARE)/config/sequences" "$(DESTDIR)$(SHARE)/config/studies" "$(DESTDIR)$(SHARE)/config/catalogue"
	for folder in rigs circuits circuits/parts cycles mechanisms sequences studies catalogue; do install -m 644 config/$$folder/*.toml "$(DESTDIR)$(SHARE)/config/$$folder"; done

uninstall:  ## remove what "make install" has installed; configuration, logs and the user are kept
	rm -rf "$(DESTDIR)$(LIB)" "$(DESTDIR)$(SHARE)" "$(DESTDIR)$(DOC)" "$(DESTDIR)$(PREFIX)/bin/hilserver" \
	    "$(DESTDIR)$(UNITS)/hilserver.service" "$(DESTDIR)$(UNITS)/hilserver@.service" \
	    "$(DESTDIR)$(PREFIX)/lib/sysusers.d/hilserver.conf" "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/hilserver.conf"

# For the release of Debian on which it is built, whose Python the environment uses. The package has its libraries with
# it, and no bytecode: its installation compiles that.
DEB := build/deb
deb: $(STAMP) program  ## build a Debian package into dist/, with EXTRAS; docs/service.md describes it
	@command -v dpkg-deb >/dev/null || { echo "dpkg-deb not found: a Debian package is built on Debian." >&2; exit 1; }
	rm -rf $(DEB)
	$(MAKE) --no-print-directory install-program install-service PREFIX=/usr SYSCONFDIR=/etc PYTHON=/usr/bin/python3 \
	    DESTDIR="$(CURDIR)/$(DEB)"
	$(BIN)/python systemd/deb.py $(DEB) dist

# Run it with the oldest Python supported; delete the file first to take newer versions.
lock: $(STAMP)  ## update requirements*.lock after a change of the dependencies in pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --extra dev --extra embedded-broker --output-file requirements.lock \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --extra embedded-broker --extra ni --extra modbus --extra serial --extra panel --extra export \
	    --extra own-components --extra compiled-circuits --extra studies --extra cluster --constraint requirements.lock \
	    --output-file requirements-run.lock \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host pyproject.toml

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist site *.egg-info drivers/*.egg-info .hypothesis .*_cache
	find hilserver drivers tests -name __pycache__ -prune -exec rm -rf {} +

python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found. Choose one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$$($(PYTHON) --version) is too old: hilserver needs 3.11. Choose one: make PYTHON=python3.11 ..." >&2; exit 1; }

# uv downloads and installs in an eighth of the time that pip takes. Where it fails, for instance because only pip is
# configured for an index, pip does it. What is hardly imported here needs no bytecode: tests of libraries, large tools.
$(STAMP): requirements.lock pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.lock
	@$(PIP) --require-hashes -r $(VENV)/uv.lock && \
	    $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock || \
	    $(PIP) --no-compile --require-hashes -r requirements.lock
	-@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|mypy|mypyc|pip|pygments|fontTools)/' $(VENV)/lib
	PYTHONWARNINGS=ignore $(PIP) --no-deps --no-build-isolation --editable .
	touch $@

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# As root on Debian, missing programs are installed. Otherwise they are listed; tests that need one are skipped and
# report this.
test-programs:
	@missing=; for program in $(TEST_PROGRAMS); do \
	    PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing libc6-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends $(TEST_PACKAGES); \
	else echo "Missing for some of the tests:$$missing. On Debian: apt-get install $(TEST_PACKAGES)"; fi
