// Fused: a * x + y with one rounding, on the host as on the device.
#pragma once

#include "kernel.h"

BY_FN float fused(float a, float x, float y) {
    return fmaf(a, x, y);
}

BY_FN double fused(double a, double x, double y) {
    return fma(a, x, y);
}
