/* hopper.h - instructions of Hopper, by the files that have them; rows of hopper.c. */
#ifndef SW_TESTS_EMULATE_HOPPER_H
#define SW_TESTS_EMULATE_HOPPER_H

#include "tests/emulate/emulate.h"

/* mbarrier.c */
emu_instruction emu_mbarrier_init, emu_mbarrier_arrive, emu_mbarrier_expect,
    emu_mbarrier_arrive_copied, emu_mbarrier_wait;

/* engine.c */
emu_instruction emu_bulk_load, emu_bulk_load_many, emu_tensor_load_2d, emu_tensor_load_3d,
    emu_tensor_load_4d, emu_tensor_load_many, emu_tensor_load_many_4d, emu_tensor_store_2d,
    emu_tensor_store_4d, emu_bulk_commit, emu_bulk_wait, emu_send_2, emu_send_4;

/* wgmma.c */
emu_instruction emu_wgmma, emu_wgmma_commit, emu_wgmma_wait;

#endif
