// Attention over a memory of 16 bit floats.
//
// ggml goes through it one query head and one cell at a time, and adds up in 16 bits; with a prompt of a few thousand
// tokens, that is most of the time an answer takes. Here the heads that share a part of the memory go through it together,
// 32 cells at a time, and cells that none of them may see (those of other sessions) are passed over.
//
// heddle.cmake renames ggml's own, so that it is ours that is called; what we do not handle goes on to ggml's.

#include "ggml-cpu-impl.h"
#include "ops.h"
#include "vec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

extern "C" void ggml_own_flash_attn_ext(const ggml_compute_params *params, ggml_tensor *dst);

#if defined(__GNUC__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HEDDLE_ATTENTION

#include <immintrin.h>

namespace {

// Rows (heads of queries) that go through the memory together.
constexpr int ROWS = 16;
// Cells that are unpacked together.
constexpr int CELLS = 32;
// The widest heads that we handle.
constexpr int WIDTH = 256;
// From so many queries on, those of a session that follow each other go through the memory together. With fewer, what a query
// gives does not depend on the others in any bit.
constexpr int64_t QUERIES_TOGETHER = 16;

struct Attention {
    const ggml_tensor *queries, *keys, *values, *mask, *sinks;
    ggml_tensor *result;
    float scale;
    // Query heads for each head of the memory.
    int64_t group;
};

// Whether it is of a kind that we handle.
bool handled(const Attention &of) {
    const ggml_tensor *q = of.queries, *k = of.keys, *v = of.values, *mask = of.mask;
    float bias, cap;
    std::memcpy(&bias, of.result->op_params + 1, sizeof bias);
    std::memcpy(&cap, of.result->op_params + 2, sizeof cap);
    return q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16 && bias == 0 && cap == 0 &&
           k->ne[0] % 8 == 0 && k->ne[0] <= WIDTH && v->ne[0] % 8 == 0 && v->ne[0] <= WIDTH &&
           q->nb[0] == sizeof(float) && k->nb[0] == sizeof(ggml_fp16_t) && v->nb[0] == sizeof(ggml_fp16_t) &&
           k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] && q->ne[2] % k->ne[2] == 0 && q->ne[3] % k->ne[3] == 0 &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(ggml_fp16_t) && mask->ne[2] == 1));
}

// Heads of queries that go through the memory together: all look at one head of it, in the order of queries.
struct Tile {
    const Attention &of;
    // Where it is: the sequence, the head of the memory, the first row of it and how many there are.
    int64_t sequence, head, first;
    int rows;

    int64_t query(int row) const { return (first + row) / of.group; }
    int64_t query_head(int row) const { return head * of.group + (first + row) % of.group; }

    const float *asked(int row) const {
        const ggml_tensor *q = of.queries;
        return reinterpret_cast<const float *>(static_cast<const char *>(q->data) + query(row) * q->nb[1] +
                                               query_head(row) * q->nb[2] + sequence * q->nb[3]);
    }

    const ggml_fp16_t *remembered(const ggml_tensor *memory, int64_t cell) const {
        const int64_t of_sequence = sequence / (of.queries->ne[3] / memory->ne[3]);
        return reinterpret_cast<const ggml_fp16_t *>(static_cast<const char *>(memory->data) + cell * memory->nb[1] +
                                                     head * memory->nb[2] + of_sequence * memory->nb[3]);
    }

    // What is added for each cell: nothing, or less than any number where it is not to be seen.
    const ggml_fp16_t *masked(int64_t query) const {
        const ggml_tensor *mask = of.mask;
        return reinterpret_cast<const ggml_fp16_t *>(static_cast<const char *>(mask->data) + query * mask->nb[1] +
                                                     sequence % mask->ne[3] * mask->nb[3]);
    }

    float *answered(int row) const {
        const ggml_tensor *dst = of.result;
        const int64_t at = (sequence * dst->ne[2] + query(row)) * dst->ne[1] + query_head(row);
        return reinterpret_cast<float *>(static_cast<char *>(dst->data) + at * dst->nb[1]);
    }
};

// How far a tile has come. Rows and cells follow each other as closely as their width lets them, as caches want it.
struct Progress {
    int64_t keys_width, values_width;
    alignas(32) float queries[ROWS * WIDTH];
    // Values by their weights, the sum of weights, and what all weights are divided by the exponential of.
    alignas(32) float sums[ROWS * WIDTH];
    float total[ROWS];
    float largest[ROWS];
    // The next cells to be seen.
    int64_t cells[CELLS];
    int count;
    // Of these: keys or values, and weights.
    alignas(32) float unpacked[CELLS * WIDTH];
    alignas(32) float weights[ROWS][CELLS];

    float *query(int row) { return queries + row * keys_width; }
    float *sum(int row) { return sums + row * values_width; }
};

// Unpacks the cells that were collected, and fetches what comes after: `ahead` cells on in `next`. A part of each of many
// cells is no stream that a processor foresees.
void unpack(const Tile &tile, const ggml_tensor *memory, const ggml_tensor *next, int64_t ahead, Progress &at) {
    const int64_t width = memory->ne[0];
    for (int cell = 0; cell < at.count; cell++) {
        const ggml_fp16_t *coming = tile.remembered(next, at.cells[cell] + ahead);
        for (int64_t d = 0; d < next->ne[0]; d += 32) {
            _mm_prefetch(reinterpret_cast<const char *>(coming + d), _MM_HINT_T0);
        }
        const ggml_fp16_t *packed = tile.remembered(memory, at.cells[cell]);
        for (int64_t d = 0; d < width; d += 8) {
            const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(packed + d));
            _mm256_store_ps(at.unpacked + cell * width + d, _mm256_cvtph_ps(halves));
        }
    }
}

// Returns the sum of each of four vectors.
__m128 totals(const __m256 of[4]) {
    const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(of[0], of[1]), _mm256_hadd_ps(of[2], of[3]));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// Multiplies `R` queries by the keys.
template <int R> void compare(int row, Progress &at) {
    const int64_t width = at.keys_width;
    for (int cell = 0; cell < at.count; cell += 4) {
        __m256 sums[R][4];
        for (int r = 0; r < R; r++) {
            for (int c = 0; c < 4; c++) {
                sums[r][c] = _mm256_setzero_ps();
            }
        }
        for (int64_t d = 0; d < width; d += 8) {
            for (int c = 0; c < 4; c++) {
                const __m256 key = _mm256_load_ps(at.unpacked + (cell + c) * width + d);
                for (int r = 0; r < R; r++) {
                    sums[r][c] = _mm256_fmadd_ps(key, _mm256_load_ps(at.query(row + r) + d), sums[r][c]);
                }
            }
        }
        for (int r = 0; r < R; r++) {
            _mm_store_ps(at.weights[row + r] + cell, totals(sums[r]));
        }
    }
}

// Adds the values by the weights of `R` rows.
template <int R> void gather(int row, Progress &at) {
    const int64_t width = at.values_width;
    int64_t d = 0;
    const auto part = [&](auto vectors) {
        constexpr int V = decltype(vectors)::value;
        __m256 sums[R][V];
        for (int r = 0; r < R; r++) {
            for (int i = 0; i < V; i++) {
                sums[r][i] = _mm256_load_ps(at.sum(row + r) + d + 8 * i);
            }
        }
        for (int cell = 0; cell < at.count; cell++) {
            __m256 weights[R];
            for (int r = 0; r < R; r++) {
                weights[r] = _mm256_broadcast_ss(at.weights[row + r] + cell);
            }
            for (int i = 0; i < V; i++) {
                const __m256 value = _mm256_load_ps(at.unpacked + cell * width + d + 8 * i);
                for (int r = 0; r < R; r++) {
                    sums[r][i] = _mm256_fmadd_ps(value, weights[r], sums[r][i]);
                }
            }
        }
        for (int r = 0; r < R; r++) {
            for (int i = 0; i < V; i++) {
                _mm256_store_ps(at.sum(row + r) + d + 8 * i, sums[r][i]);
            }
        }
        d += 8 * V;
    };
    while (d + 32 <= width) {
        part(std::integral_constant<int, 4>());
    }
    while (d < width) {
        part(std::integral_constant<int, 1>());
    }
}

void scale(float *numbers, int64_t width, float by) {
    for (int64_t d = 0; d < width; d += 8) {
        _mm256_store_ps(numbers + d, _mm256_mul_ps(_mm256_load_ps(numbers + d), _mm256_set1_ps(by)));
    }
}

__m256 exponential(__m256 of) {
#ifdef __AVX512F__
    return _mm512_castps512_ps256(ggml_v_expf(_mm512_castps256_ps512(of)));
#else
    return ggml_v_expf(of);
#endif
}

// Turns what a row made of the keys into weights, relative to the largest so far.
void weigh(int row, Progress &at) {
    float *weights = at.weights[row];
    float largest = at.largest[row];
    for (int cell = 0; cell < at.count; cell++) {
        largest = std::max(largest, weights[cell]);
    }
    // Until it has seen a cell, there is nothing to be relative to.
    if (largest == -INFINITY) {
        std::fill_n(weights, CELLS, 0.0f);
        return;
    }
    if (largest > at.largest[row]) {
        const float less = expf(at.largest[row] - largest);
        scale(at.sum(row), at.values_width, less);
        at.total[row] *= less;
        at.largest[row] = largest;
    }
    std::fill(weights + at.count, weights + CELLS, -INFINITY);
    __m256 total = _mm256_setzero_ps();
    for (int cell = 0; cell < CELLS; cell += 8) {
        const __m256 power = _mm256_sub_ps(_mm256_load_ps(weights + cell), _mm256_set1_ps(largest));
        const __m256 weight = exponential(power);
        _mm256_store_ps(weights + cell, weight);
        total = _mm256_add_ps(total, weight);
    }
    const __m256 four[4] = {total, _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    at.total[row] += _mm_cvtss_f32(totals(four));
}

// Sees the cells that were collected.
void see(const Tile &tile, Progress &at) {
    unpack(tile, tile.of.keys, tile.of.values, 0, at);
    int row = 0;
    for (; row + 2 <= tile.rows; row += 2) {
        compare<2>(row, at);
    }
    if (row < tile.rows) {
        compare<1>(row, at);
    }
    float added[CELLS];
    for (row = 0; row < tile.rows; row++) {
        if (tile.of.mask) {
            if (row == 0 || tile.query(row) != tile.query(row - 1)) {
                const ggml_fp16_t *masked = tile.masked(tile.query(row));
                for (int cell = 0; cell < at.count; cell++) {
                    added[cell] = _cvtsh_ss(masked[at.cells[cell]]);
                }
            }
            for (int cell = 0; cell < at.count; cell++) {
                at.weights[row][cell] += added[cell];
            }
        }
        weigh(row, at);
    }
    unpack(tile, tile.of.values, tile.of.keys, CELLS, at);
    for (row = 0; row + 2 <= tile.rows; row += 2) {
        gather<2>(row, at);
    }
    if (row < tile.rows) {
        gather<1>(row, at);
    }
    at.count = 0;
}

// Returns which of 16 cells some query of a tile may see, a bit for each.
unsigned seen(const Tile &tile, int64_t cell) {
    if (!tile.of.mask) {
        return 0xffff;
    }
    const __m256i never = _mm256_set1_epi16(short(0xfc00));
    __m256i hidden = _mm256_set1_epi16(-1);
    for (int64_t query = tile.query(0); query <= tile.query(tile.rows - 1); query++) {
        const __m256i masked = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(tile.masked(query) + cell));
        hidden = _mm256_and_si256(hidden, _mm256_cmpeq_epi16(masked, never));
    }
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(hidden), _mm256_extracti128_si256(hidden, 1));
    return ~unsigned(_mm_movemask_epi8(bytes)) & 0xffff;
}

void attend(const Tile &tile, Progress &at) {
    const Attention &of = tile.of;
    const int64_t width = of.values->ne[0], cells = of.keys->ne[1];
    at.keys_width = of.keys->ne[0];
    at.values_width = width;
    for (int row = 0; row < tile.rows; row++) {
        std::memcpy(at.query(row), tile.asked(row), at.keys_width * sizeof(float));
        scale(at.query(row), at.keys_width, of.scale);
        std::fill_n(at.sum(row), width, 0.0f);
        at.total[row] = 0;
        at.largest[row] = -INFINITY;
    }
    at.count = 0;
    const auto collect = [&](int64_t cell) {
        at.cells[at.count++] = cell;
        if (at.count == CELLS) {
            see(tile, at);
        }
    };
    int64_t cell = 0;
    for (; cell + 16 <= cells; cell += 16) {
        for (unsigned bits = seen(tile, cell); bits != 0; bits &= bits - 1) {
            collect(cell + __builtin_ctz(bits));
        }
    }
    for (; cell < cells; cell++) {
        collect(cell);
    }
    if (at.count > 0) {
        see(tile, at);
    }
    for (int row = 0; row < tile.rows; row++) {
        // A sink is a cell without a value.
        if (of.sinks) {
            const float sink = static_cast<const float *>(of.sinks->data)[tile.query_head(row)];
            if (sink > at.largest[row]) {
                const float less = expf(at.largest[row] - sink);
                scale(at.sum(row), width, less);
                at.total[row] = at.total[row] * less + 1;
            } else {
                at.total[row] += expf(sink - at.largest[row]);
            }
        }
        scale(at.sum(row), width, at.total[row] == 0 ? 0 : 1 / at.total[row]);
        std::memcpy(tile.answered(row), at.sum(row), width * sizeof(float));
    }
}

// Whether two queries of a tile are of one session: then the later one sees all that the earlier one does, which sees itself
// at least. (Behind a sliding window this is never so, and there is little to see.)
bool continues(const Tile &tile, int64_t earlier, int64_t later) {
    if (!tile.of.mask) {
        return true;
    }
    const ggml_fp16_t *before = tile.masked(earlier), *after = tile.masked(later);
    const __m256i never = _mm256_set1_epi16(short(0xfc00));
    const int64_t cells = tile.of.keys->ne[1];
    int64_t cell = 0;
    for (; cell + 16 <= cells; cell += 16) {
        const __m256i seen_before = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(before + cell));
        const __m256i seen_after = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(after + cell));
        // Hidden after, and not hidden before.
        const __m256i lost =
            _mm256_andnot_si256(_mm256_cmpeq_epi16(seen_before, never), _mm256_cmpeq_epi16(seen_after, never));
        if (!_mm256_testz_si256(lost, lost)) {
            return false;
        }
    }
    for (; cell < cells; cell++) {
        if (after[cell] == 0xfc00 && before[cell] != 0xfc00) {
            return false;
        }
    }
    return true;
}

// Cuts a tile to the queries that may go together. Sessions never do: where one has gone beyond all numbers, the weight
// of nothing that its cells have for another would not be nothing.
int together(const Tile &tile) {
    const int64_t group = tile.of.group;
    int rows = std::min(int64_t(tile.rows), group - tile.first % group);
    if (tile.of.queries->ne[1] >= QUERIES_TOGETHER) {
        while (rows < tile.rows && continues(tile, tile.query(rows - 1), tile.query(rows))) {
            rows = std::min(int64_t(tile.rows), rows + group);
        }
    }
    return rows;
}

// Does the rows from `row` to `end`, one head of the memory after the other.
void attend_rows(const Attention &of, int64_t row, int64_t end) {
    // Not cleared: what is read of it is always written before.
    Progress progress;
    const int64_t heads = of.keys->ne[2], in_head = of.queries->ne[1] * of.group;
    while (row < end) {
        const int64_t first = row % in_head, head = row / in_head;
        const int64_t count = std::min({int64_t(ROWS), end - row, in_head - first});
        Tile tile{of, head / heads, head % heads, first, int(count)};
        tile.rows = together(tile);
        attend(tile, progress);
        row += tile.rows;
    }
}

// Does the share of one thread: as many rows as any other's. Later queries see more than earlier ones, so with many of them
// everybody takes some from either end.
void attend_share(const Attention &of, int64_t thread, int64_t threads) {
    const int64_t rows = of.queries->ne[1] * of.queries->ne[2] * of.queries->ne[3];
    if (of.queries->ne[1] < QUERIES_TOGETHER) {
        return attend_rows(of, rows * thread / threads, rows * (thread + 1) / threads);
    }
    for (const int64_t part : {thread, 2 * threads - 1 - thread}) {
        attend_rows(of, rows * part / (2 * threads), rows * (part + 1) / (2 * threads));
    }
}

} // namespace

#endif

// Which kernels these are; a test looks for it in what was built.
extern "C" {
#ifdef __ELF__
__attribute__((used, retain))
#endif
extern const char heddle_kernels[] = "heddle kernels " HEDDLE_KERNELS;
}

extern "C" void ggml_compute_forward_flash_attn_ext(const ggml_compute_params *params, ggml_tensor *dst) {
#ifdef HEDDLE_ATTENTION
    Attention of = {dst->src[0], dst->src[1], dst->src[2], dst->src[3], dst->src[4], dst, 0, 0};
    std::memcpy(&of.scale, dst->op_params, sizeof of.scale);
    if (!params->use_ref && handled(of)) {
        of.group = of.queries->ne[2] / of.keys->ne[2];
        return attend_share(of, params->ith, params->nth);
    }
#endif
    ggml_own_flash_attn_ext(params, dst);
}
