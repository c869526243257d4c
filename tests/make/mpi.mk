# libswage_mpi.so, which the program opens when a launcher such as mpirun has started several ranks.
# It is built where mpicc is, by `make` too; the program itself needs no MPI.

MPICC   ?= mpicc
MPICC_AT := $(shell command -v $(MPICC) 2>/dev/null)
MPI_SO  := $(BUILD)/libswage_mpi.so
MPI_OBJ := $(BUILD)/quant/team/mpi/mpi_transport.o

$(BUILD)/quant/team/join_mpi.o $(MPI_OBJ): $(BUILD)/abi.h
$(BUILD)/quant/team/join_mpi.o $(MPI_OBJ): LAST_FLAGS := -include $(BUILD)/abi.h

# Not among the others: a hundred megabytes that a single host has no use for.
.PHONY: deps-mpi
deps-mpi: ## install Open MPI, for `make mpi` and tests/e2e/mpi.sh
	$(Q)sh tests/make/apt_install.sh libopenmpi-dev openmpi-bin

ifeq ($(MPICC_AT),)
.PHONY: mpi
mpi:
	@echo "skipped: no $(MPICC) found; make deps-mpi installs Open MPI"
else
# Its headers are those of a system: they cast as they like.
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(shell $(MPICC_AT) --showme:compile 2>/dev/null || \
                $(MPICC_AT) -compile_info 2>/dev/null | tr ' ' '\n' | grep '^-I'))
$(MPI_OBJ): ISA_FLAGS := -fPIC $(MPI_CFLAGS)

# What it shares with the program it takes from the program.
$(MPI_SO): $(MPI_OBJ)
	@$(if $(V),,echo "  LINK $@")
	$(Q)$(if $(findstring ccache,$(CC)),,OMPI_CC="$(CC)" )$(MPICC_AT) $(filter -fsanitize%,$(OPT_$(CONFIG))) -shared -Wl,-Bsymbolic -o $@ $^

.PHONY: mpi
mpi: $(MPI_SO) ## the half for several hosts, where mpicc is (MPICC=mpicc)
all: $(MPI_SO)
endif

# The library takes from the program what they share.
$(BUILD)/tests/tools/team_ranks: LDFLAGS += -rdynamic
