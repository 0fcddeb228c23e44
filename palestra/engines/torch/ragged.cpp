// Attention of single new tokens over KV cache slots, on a CPU: each token reads exactly the tokens
// of its own episode, in place. The query heads of a key head share one pass over its keys.
// Built and called by ragged.py.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

struct bfloat16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(bfloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline void store(float x, float* to) { *to = x; }

inline void store(float x, bfloat16* to) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);  // round to nearest, ties to even
    to->bits = uint16_t(bits >> 16);
}

// exp(x) for x <= 0: 2^n times a polynomial. Its relative error is below 2e-7, and compilers turn
// loops over it into vector instructions, which they do not with std::exp.
inline float exp_negative(float x) {
    x = std::max(x, -87.0f);
    float n = std::floor(x * 1.44269504f + 0.5f);
    float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

struct Shape {
    int64_t tokens, heads, key_heads, dim;
    int64_t slot_stride, head_stride;  // of the cache, in elements; a token's stride is dim
};

// One new token and one key head. `scores` and `sums` are scratch memory.
template <typename T, int64_t DIM>
void attend_head(const Shape& shape, const T* query, const T* keys, const T* values, int64_t length,
                 float scale, T* out, float* scores, float* sums) {
    const int64_t dim = DIM ? DIM : shape.dim;
    const int64_t group = shape.heads / shape.key_heads;
    float* wide = sums + group * dim;  // queries in float32
    for (int64_t i = 0; i < group * dim; i++) wide[i] = to_float(query[i]) * scale;
    for (int64_t token = 0; token < length; token++) {
        const T* key = keys + token * dim;
        for (int64_t g = 0; g < group; g++) {
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t d = 0; d < dim; d++) sum += wide[g * dim + d] * to_float(key[d]);
            scores[g * length + token] = sum;
        }
    }
    for (int64_t g = 0; g < group; g++) {
        float* own = scores + g * length;
        float highest = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : highest)
        for (int64_t token = 0; token < length; token++) highest = std::max(highest, own[token]);
#pragma omp simd reduction(+ : total)
        for (int64_t token = 0; token < length; token++) {
            own[token] = exp_negative(own[token] - highest);
            total += own[token];
        }
        const float share = 1.0f / total;
        for (int64_t token = 0; token < length; token++) own[token] *= share;
    }
    std::fill(sums, sums + group * dim, 0.0f);
    for (int64_t token = 0; token < length; token++) {
        const T* value = values + token * dim;
        for (int64_t g = 0; g < group; g++) {
            const float weight = scores[g * length + token];
#pragma omp simd
            for (int64_t d = 0; d < dim; d++) sums[g * dim + d] += weight * to_float(value[d]);
        }
    }
    for (int64_t i = 0; i < group * dim; i++) store(sums[i], out + i);
}

template <typename T>
void attend(const Shape& shape, const T* query, const T* keys, const T* values,
            const int64_t* slots, const int64_t* lengths, float scale, T* out, int threads) {
    const int64_t group = shape.heads / shape.key_heads;
    const int64_t longest = *std::max_element(lengths, lengths + shape.tokens);
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> scores(group * longest), sums(2 * group * shape.dim);
#pragma omp for schedule(dynamic)
        for (int64_t work = 0; work < shape.tokens * shape.key_heads; work++) {
            const int64_t token = work / shape.key_heads, head = work % shape.key_heads;
            const int64_t at = slots[token] * shape.slot_stride + head * shape.head_stride;
            const int64_t own = (token * shape.heads + head * group) * shape.dim;
            auto function = shape.dim == 64    ? attend_head<T, 64>
                            : shape.dim == 128 ? attend_head<T, 128>
                            : shape.dim == 32  ? attend_head<T, 32>
                                               : attend_head<T, 0>;
            function(shape, query + own, keys + at, values + at, lengths[token], scale, out + own,
                     scores.data(), sums.data());
        }
    }
}

}  // namespace

extern "C" void attend_float32(const Shape* shape, const void* query, const void* keys,
                               const void* values, const int64_t* slots, const int64_t* lengths,
                               float scale, void* out, int threads) {
    attend(*shape, (const float*)query, (const float*)keys, (const float*)values, slots, lengths,
           scale, (float*)out, threads);
}

extern "C" void attend_bfloat16(const Shape* shape, const void* query, const void* keys,
                                const void* values, const int64_t* slots, const int64_t* lengths,
                                float scale, void* out, int threads) {
    attend(*shape, (const bfloat16*)query, (const bfloat16*)keys, (const bfloat16*)values, slots,
           lengths, scale, (bfloat16*)out, threads);
}
