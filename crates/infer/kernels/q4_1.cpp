// Weights of type Q4_1, multiplied by several columns at once.
//
// ggml multiplies weights of this type by one column after the other, row by row, and unpacks them anew for each: four
// sessions in a batch cost nearly as much as four batches. Here eight rows are unpacked together, each into a part of
// every register, for up to four columns. What a column gives does not depend on the others.
//
// ggml asks `llamafile_sgemm` first whether it has something better for a pair of types. heddle.cmake renames ggml's
// own, so that it is ours that is asked, and everything but Q4_1 goes on to ggml's.

#include "ggml-cpu-impl.h"

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "llamafile/sgemm.h"

#include <algorithm>
#include <cstring>

extern "C" bool ggml_llamafile_sgemm(const ggml_compute_params *, int64_t, int64_t, int64_t, const void *, int64_t,
                                     const void *, int64_t, void *, int64_t, int, int, int);

// The processors that heddle is built for (x86-64-v3). For others ggml's own is left to it.
#if defined(__GNUC__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HEDDLE_Q4_1

#include <immintrin.h>

namespace {

// Rows that are multiplied together: each has one of the eight numbers of a register.
constexpr int ROWS = 8;
// Columns for which these are unpacked once.
constexpr int COLUMNS = 4;
// Blocks of 32 weights that are multiplied before the sums are stored. Panels of so many fit into a first cache.
constexpr int64_t DEPTH = 64;
// Rows that meet all columns before the next ones are read: so many stay in a second cache.
constexpr int64_t ROWS_CACHED = 128;

struct Operands {
    const block_q4_1 *weights;
    int64_t weights_stride;
    const block_q8_1 *columns;
    int64_t columns_stride;
    float *products;
    int64_t products_stride;
};

// One block of each column of a group, side by side.
struct Panel {
    // Four numbers of a column in each.
    int32_t numbers[COLUMNS][QK8_1 / 4];
    float scales[COLUMNS];
    // What the numbers of a block add up to, scaled.
    float sums[COLUMNS];
};

// Fills `panels` with the blocks from `from` on of `count` columns.
void gather(const Operands &of, int64_t first, int count, int64_t from, int64_t depth, Panel *panels) {
    for (int column = 0; column < count; column++) {
        const block_q8_1 *blocks = of.columns + (first + column) * of.columns_stride + from;
        for (int64_t block = 0; block < depth; block++) {
            ggml_half scale_and_sum[2];
            std::memcpy(scale_and_sum, blocks + block, sizeof scale_and_sum);
            panels[block].scales[column] = _cvtsh_ss(scale_and_sum[0]);
            panels[block].sums[column] = _cvtsh_ss(scale_and_sum[1]);
            std::memcpy(panels[block].numbers[column], blocks[block].qs, QK8_1);
        }
    }
}

// A block of each of eight rows. `numbers[i]` has the weights 4i to 4i + 3 of every row.
struct Weights {
    __m256i numbers[QK4_1 / 4];
    __m256 scales;
    __m256 minimums;
};

// Four words of a block of eight rows, from byte `at` on: those of a row and of the fourth after it in each.
struct Words {
    __m256i rows[ROWS / 2];

    Words(const block_q4_1 *const blocks[ROWS], int64_t block, int at) {
        for (int r = 0; r < ROWS / 2; r++) {
            const auto word = [&](int row) {
                const char *bytes = reinterpret_cast<const char *>(blocks[row] + block) + at;
                return _mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes));
            };
            rows[r] = _mm256_set_m128i(word(r + ROWS / 2), word(r));
        }
    }
};

[[gnu::always_inline]] inline Weights unpack(const block_q4_1 *const blocks[ROWS], int64_t block) {
    static_assert(sizeof(block_q4_1) == 20, "a scale and a minimum, then 32 weights of four bits");
    // The words of a block are turned around, so that each register has the same word of all rows: the first has scale and
    // minimum, the others eight weights each.
    const Words head(blocks, block, 0), tail(blocks, block, 4);
    const __m256i a = _mm256_unpacklo_epi32(head.rows[0], head.rows[1]);
    const __m256i b = _mm256_unpacklo_epi32(head.rows[2], head.rows[3]);
    const __m256i c = _mm256_unpackhi_epi32(head.rows[0], head.rows[1]);
    const __m256i d = _mm256_unpackhi_epi32(head.rows[2], head.rows[3]);
    const __m256i e = _mm256_unpackhi_epi32(tail.rows[0], tail.rows[1]);
    const __m256i f = _mm256_unpackhi_epi32(tail.rows[2], tail.rows[3]);
    const __m256i words[] = {_mm256_unpackhi_epi64(a, b), _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d),
                             _mm256_unpackhi_epi64(e, f)};
    Weights weights;
    const __m256i low = _mm256_set1_epi8(15);
    for (int i = 0; i < 4; i++) {
        weights.numbers[i] = _mm256_and_si256(words[i], low);
        weights.numbers[i + 4] = _mm256_and_si256(_mm256_srli_epi16(words[i], 4), low);
    }
    const __m256i halves = _mm256_unpacklo_epi64(a, b);
    const __m256i scales = _mm256_blend_epi16(halves, _mm256_setzero_si256(), 0xaa);
    const __m256i minimums = _mm256_srli_epi32(halves, 16);
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(scales, minimums), 0xd8);
    weights.scales = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    weights.minimums = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
    return weights;
}

// Multiplies eight rows, or those of them that are before `end`, by `C` columns. A weight is `scale * q + minimum`, so
// a block of them gives `scale * column.scale * Σ q·p + minimum * column.sum`.
template <int C>
void multiply(const Operands &of, int64_t row, int64_t end, int64_t column, int64_t from, int64_t depth,
              const Panel *panels) {
    const block_q4_1 *rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
        rows[r] = of.weights + std::min(row + r, end - 1) * of.weights_stride + from;
    }
    __m256 sums[C];
    for (int c = 0; c < C; c++) {
        sums[c] = _mm256_setzero_ps();
    }
    // Eight rows at once are no stream that a processor foresees. While these are multiplied, the next ones are fetched, in
    // the order in which they lie.
    const block_q4_1 *next = rows[0] + ROWS * of.weights_stride;
    int64_t fetched = 0;
    for (int64_t block = 0; block < depth; block++) {
        for (size_t line = 0; line < ROWS * sizeof(block_q4_1); line += 64) {
            _mm_prefetch(reinterpret_cast<const char *>(next + fetched) + line, _MM_HINT_T0);
        }
        fetched += ROWS;
        if (fetched >= depth) {
            fetched -= depth;
            next += of.weights_stride;
        }
        const Weights weights = unpack(rows, block);
        for (int c = 0; c < C; c++) {
            const int32_t *numbers = panels[block].numbers[c];
            // Eight times a pair of at most 15 * 128, which 16 bits hold.
            __m256i pairs = _mm256_maddubs_epi16(weights.numbers[0], _mm256_set1_epi32(numbers[0]));
            for (int i = 1; i < QK8_1 / 4; i++) {
                const __m256i more = _mm256_maddubs_epi16(weights.numbers[i], _mm256_set1_epi32(numbers[i]));
                pairs = _mm256_add_epi16(pairs, more);
            }
            const __m256 products = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            const __m256 scales = _mm256_mul_ps(weights.scales, _mm256_broadcast_ss(&panels[block].scales[c]));
            sums[c] = _mm256_fmadd_ps(products, scales, sums[c]);
            sums[c] = _mm256_fmadd_ps(weights.minimums, _mm256_broadcast_ss(&panels[block].sums[c]), sums[c]);
        }
    }
    for (int c = 0; c < C; c++) {
        float *products = of.products + (column + c) * of.products_stride + row;
        float total[ROWS];
        _mm256_storeu_ps(total, sums[c]);
        for (int r = 0; r < std::min<int64_t>(ROWS, end - row); r++) {
            products[r] = from == 0 ? total[r] : products[r] + total[r];
        }
    }
}

template <int C>
void multiply_rows(const Operands &of, int64_t row, int64_t end, int64_t column, int64_t from, int64_t depth,
                   const Panel *panels) {
    for (; row < end; row += ROWS) {
        multiply<C>(of, row, end, column, from, depth, panels);
    }
}

// Multiplies the rows from `first` to `end` by all columns.
void multiply_share(const Operands &of, int64_t first, int64_t end, int64_t columns, int64_t depth) {
    Panel panels[DEPTH];
    const int64_t groups = (columns + COLUMNS - 1) / COLUMNS;
    for (int64_t row = first; row < end; row += ROWS_CACHED) {
        const int64_t row_end = std::min(row + ROWS_CACHED, end);
        for (int64_t from = 0; from < depth; from += DEPTH) {
            const int64_t blocks = std::min(DEPTH, depth - from);
            for (int64_t group = 0; group < groups; group++) {
                // Of even size, as far as can be: five columns are two and three.
                const int64_t column = group * columns / groups;
                const int count = int((group + 1) * columns / groups - column);
                gather(of, column, count, from, blocks, panels);
                switch (count) {
                    case 1: multiply_rows<1>(of, row, row_end, column, from, blocks, panels); break;
                    case 2: multiply_rows<2>(of, row, row_end, column, from, blocks, panels); break;
                    case 3: multiply_rows<3>(of, row, row_end, column, from, blocks, panels); break;
                    default: multiply_rows<4>(of, row, row_end, column, from, blocks, panels); break;
                }
            }
        }
    }
}

} // namespace

#endif

extern "C" bool llamafile_sgemm(const ggml_compute_params *params, int64_t rows, int64_t columns, int64_t depth,
                                const void *weights, int64_t weights_stride, const void *numbers,
                                int64_t numbers_stride, void *products, int64_t products_stride, int weights_type,
                                int numbers_type, int products_type) {
#ifdef HEDDLE_Q4_1
    if (weights_type == GGML_TYPE_Q4_1 && numbers_type == GGML_TYPE_Q8_1 && products_type == GGML_TYPE_F32) {
        const Operands of = {static_cast<const block_q4_1 *>(weights), weights_stride,
                             static_cast<const block_q8_1 *>(numbers), numbers_stride,
                             static_cast<float *>(products),           products_stride};
        const int64_t share = ((rows + ROWS - 1) / ROWS + params->nth - 1) / params->nth * ROWS;
        const int64_t first = std::min(rows, share * params->ith);
        multiply_share(of, first, std::min(rows, first + share), columns, depth);
        return true;
    }
#endif
    return ggml_llamafile_sgemm(params, rows, columns, depth, weights, weights_stride, numbers, numbers_stride,
                                products, products_stride, weights_type, numbers_type, products_type);
}
