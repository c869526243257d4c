/* probe_cuda.c - the driver, the CUDA half of the program, and the cards that it can use. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tools/doctor/doctor.h"
#include "tools/terminal/units.h"

/* Why a device cannot be opened, without the advice that the message ends with. */
static void reason(char out[SW_ERR_TEXT_BYTES], const sw_err *err)
{
    char *advice;

    memcpy(out, err->text, SW_ERR_TEXT_BYTES);
    if ((advice = strstr(out, ", or use --device cpu")) != NULL) *advice = '\0';
}

static bool probe_driver(sw_doctor *d)
{
    char line[256];

    if (sw_system_line(line, sizeof line, "/sys/module/nvidia/version", "") ||
        sw_system_line(line, sizeof line, "/proc/driver/nvidia/version", "NVRM version")) {
        (void)sw_doctor_add(d, "driver", "NVIDIA %s", line);
        return true;
    }
    (void)sw_doctor_add(d, "driver", "no driver of NVIDIA; --device cpu is all there is");
    return false;
}

static void probe_card(sw_doctor *d, int index)
{
    char total[16], l2[16], why[SW_ERR_TEXT_BYTES];
    const sw_device_info *info;
    sw_device *gpu = NULL;
    sw_err err = {0};
    sw_finding *f;

    if (sw_device_open(&gpu, index, 0, &err) != SW_OK) {
        reason(why, &err);
        f = sw_doctor_add(d, "card", "cuda:%d: %.400s", index, why);
        sw_doctor_mark(d, f, SW_HEALTH_FAULT, "use another card (--device cuda:N) or --device cpu");
        return;
    }
    info = sw_device_about(gpu);
    sw_term_bytes(total, (double)info->total_bytes);
    sw_term_bytes(l2, (double)info->l2_bytes);
    f = sw_doctor_add(d, "card", "cuda:%d: %s, compute capability %d.%d, %d multiprocessors, %s, "
                      "L2 cache %s", index, info->name, info->arch / 10, info->arch % 10,
                      info->n_sms, total, l2);
    if (info->cap_bytes < info->total_bytes / 2)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "less than half of its memory is free; nvidia-smi "
                       "shows who holds the rest");
    sw_device_close(gpu);
}

/* A half that was asked for by name must be there; one that a driver waits for should be. */
static void probe_half(sw_doctor *d, bool has_driver)
{
    const char *named = getenv("SWAGE_CUDA_LIBRARY");
    char why[SW_ERR_TEXT_BYTES];
    sw_device *gpu = NULL;
    sw_err err = {0};
    sw_finding *f;

    if (sw_device_is_built()) {
        (void)sw_doctor_add(d, "cuda", "libswage_cuda.so is there and fits this program");
        return;
    }
    (void)!sw_device_open(&gpu, 0, 0, &err);
    reason(why, &err);
    f = sw_doctor_add(d, "cuda", "%.480s", why);
    if (named && *named)
        sw_doctor_mark(d, f, SW_HEALTH_FAULT, "SWAGE_CUDA_LIBRARY is %.300s: correct or unset it",
                       named);
    if (has_driver)
        sw_doctor_mark(d, f, SW_HEALTH_WARNING, "there is a driver: build the CUDA half with `make "
                       "cuda` where nvcc is, and put libswage_cuda.so beside the program");
}

void sw_probe_cuda(sw_doctor *d)
{
    const bool has_driver = probe_driver(d);
    const int n = sw_device_count();

    probe_half(d, has_driver);
    for (int i = 0; i < n; i++) probe_card(d, i);
    if (sw_device_is_built() && has_driver && !n)
        sw_doctor_mark(d, sw_doctor_add(d, "card", "the driver shows no card"), SW_HEALTH_WARNING,
                       "look at nvidia-smi and at CUDA_VISIBLE_DEVICES; a driver that is too old "
                       "for the CUDA half shows none either");
}
