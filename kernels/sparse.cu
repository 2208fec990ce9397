// Sparse: a sparse matrix times a dense one.
#include "fused.h"

/// Where each row of a sorted COO matrix begins: `starts` gets `rows + 1` entries. This makes it CSR.
template <typename I>
BY_FN void row_starts(I* starts, const I* row, u64 rows, u64 count) {
    for (u64 r = first(); r <= rows; r += step()) {
        u64 low = 0, high = count;
        while (low < high) {
            const u64 middle = low + (high - low) / 2;
            if (static_cast<u64>(load<I>(row + middle)) < r) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        store(starts + r, static_cast<I>(low));
    }
}

/// out = alpha * (A x) + beta * out, A in CSR with `rows` rows, x and out row-major with `columns` columns and `ldx`
/// and `ldo` elements from row to row. One thread computes an element, in the order of the row: the result does not
/// depend on the launch. With beta 0 what stood in `out` is not read.
template <typename T, typename I>
BY_FN void csr_mm(T* out, u64 ldo, const I* starts, const I* column, const T* value, const T* x, u64 ldx, u64 rows,
                  u64 columns, T alpha, T beta) {
    const u64 count = rows * columns;
    for (u64 i = first(); i < count; i += step()) {
        const u64 r = i / columns, c = i % columns;
        T sum = 0;
        const I end = load<I>(starts + r + 1);
        for (I at = load<I>(starts + r); at < end; at++) {
            const T* from = x + static_cast<u64>(load<I>(column + at)) * ldx + c;
            sum = fused(load<T>(value + at), load<T>(from), sum);
        }
        T* to = out + r * ldo + c;
        store(to, beta == 0 ? alpha * sum : fused(beta, load<T>(to), alpha * sum));
    }
}

#define ROW_STARTS(index, I)                                                                              \
    BY_KERNEL by_coo_row_starts_##index(I* starts, const I* row, u64 rows, u64 count) {                   \
        row_starts<I>(starts, row, rows, count);                                                          \
    }

#define CSR_MM(type, T, index, I)                                                                         \
    BY_KERNEL by_csr_mm_##type##_##index(T* out, u64 ldo, const I* starts, const I* column,               \
                                         const T* value, const T* x, u64 ldx, u64 rows, u64 columns,      \
                                         T alpha, T beta) {                                               \
        csr_mm<T, I>(out, ldo, starts, column, value, x, ldx, rows, columns, alpha, beta);                \
    }

ROW_STARTS(i32, i32)
ROW_STARTS(i64, i64)
CSR_MM(f32, float, i32, i32)
CSR_MM(f32, float, i64, i64)
CSR_MM(f64, double, i32, i32)
CSR_MM(f64, double, i64, i64)
