#include "plugins/devices/cuda/kernels/common/map_source.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace consist::cuda {
namespace {

std::string text_of(int number) {
  return std::to_string(number);
}

/// bf16 is the upper half of an f32; rounded to nearest, ties to even, NaN stays one. Compiled from nothing but itself: NVRTC has
/// no headers to look for.
constexpr const char* prelude = R"(
struct Operands { const void* in[12]; void* out[12]; long long in_row[12]; long long out_row[12]; long long packs; long long columns;
  long long first; long long rows; long long chunk_rows; long long all_rows; };
typedef unsigned short bf16;
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack { T element[N]; };
__device__ __forceinline__ float number(float x) { return x; }
__device__ __forceinline__ float number(int x) { return (float)x; }
__device__ __forceinline__ float number(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ void round_to(float& to, float x) { to = x; }
__device__ __forceinline__ void round_to(bf16& to, float x) {
  ROUND
}
// 8-bit floats as consist/float8.h states them, whose comments say why it goes so: M bits of mantissa, exponent bias B, and the
// code of the largest finite number.
template <int M, int B, unsigned largest> struct Float8 { unsigned char code; };
typedef Float8<3, 7, 0x7e> e4m3;
typedef Float8<2, 15, 0x7b> e5m2;
template <int M, int B, unsigned L> __device__ __forceinline__ float number(Float8<M, B, L> x) {
  const unsigned magnitude = x.code & 0x7fu, sign = (x.code & 0x80u) << 24;
  const float scaled = __uint_as_float(magnitude << (23 - M)) * __uint_as_float((unsigned)(254 - B) << 23);
  return __uint_as_float((magnitude > L ? 0x7fc00000u : __float_as_uint(scaled)) | sign);
}
template <int M, int B, unsigned L> __device__ __forceinline__ void round_to(Float8<M, B, L>& to, float x) {
  constexpr int dropped = 23 - M;
  constexpr unsigned rebias = (unsigned)(127 - B) << M, largest = (L + rebias) << dropped;
  constexpr unsigned smallest_normal = (unsigned)(128 - B) << 23, steps = (unsigned)(151 - B - M) << 23;
  const unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  const unsigned clamped = magnitude < largest ? magnitude : largest;
  const unsigned normal = ((clamped + ((1u << (dropped - 1)) - 1) + (clamped >> dropped & 1u)) >> dropped) - rebias;
  const unsigned subnormal = __float_as_uint(__uint_as_float(clamped) + __uint_as_float(steps)) - steps;
  const unsigned code = (clamped < smallest_normal ? subnormal : normal) | sign;
  to.code = (unsigned char)(magnitude > 0x7f800000u ? 0x7fu : code);
}
template <int N, typename T> __device__ __forceinline__ Pack<T, N> load(const void* from, long long element) {
  return *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(from) + element);
}
template <int N, typename T> __device__ __forceinline__ void store(void* to, long long element, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(static_cast<T*>(to) + element) = pack;
}
// Quick ones where results are rounded to 8 bits: the quick exponential's relative error grows with |x|.
__device__ __forceinline__ float exponential(float x) { return quick ? __expf(x) : expf(x); }
__device__ __forceinline__ float quotient(float x, float y) { return quick ? __fdividef(x, y) : x / y; }
__device__ __forceinline__ float tangent(float x) {
  if (!quick) return tanhf(x);
  // Near 0 the difference has few digits left.
  const float far = 1.0f - __fdividef(2.0f, __expf(2.0f * x) + 1.0f), near = x - x * x * x * 0.333333333f;
  return fabsf(x) < 0.05f ? near : far;
}
__device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + exponential(-x)); }
)";

std::string number(double value) {
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.9g", value);
  std::string text = digits.data();
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return "(" + text + "f)";
}

std::string type_name(DType type) {
  switch (type) {
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "int";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
    default:
      return "float";
  }
}

std::string call(const ExpressionNode& node, const std::string& x, const std::string& y, const std::string& z) {
  switch (node.function) {
    case Function::add:
      return x + " + " + y;
    case Function::subtract:
      return x + " - " + y;
    case Function::multiply:
      return x + " * " + y;
    case Function::divide:
      return "quotient(" + x + ", " + y + ")";
    case Function::negate:
      return "-" + x;
    case Function::exp:
      return "exponential(" + x + ")";
    case Function::log:
      return "logf(" + x + ")";
    case Function::sqrt:
      return "sqrtf(" + x + ")";
    case Function::rsqrt:
      return "rsqrtf(" + x + ")";
    case Function::tanh:
      return "tangent(" + x + ")";
    case Function::erf:
      return "erff(" + x + ")";
    case Function::sigmoid:
      return "sigmoid(" + x + ")";
    case Function::abs:
      return "fabsf(" + x + ")";
    case Function::sign:
      return x + " > 0.0f ? 1.0f : " + x + " < 0.0f ? -1.0f : 0.0f";
    case Function::max:
      return x + " > " + y + " ? " + x + " : " + y;
    case Function::min:
      return x + " < " + y + " ? " + x + " : " + y;
    case Function::greater:
      return x + " > " + y + " ? 1.0f : 0.0f";
    case Function::select:
      return x + " > 0.0f ? " + y + " : " + z;
    default:
      return x;  // inputs and constants, which element_body() writes
  }
}

/// Statements that compute one element of each result from the packs in[u], as variables v0, v1, ... of which take(k, variable)
/// is the statement for result k.
template <typename Take>
std::string element_body(const Expressions& f, const MapForm& form, const Take& take) {
  const ExpressionSteps plan = f.steps();
  std::vector<std::string> slot(static_cast<std::size_t>(plan.slots));
  std::string text;
  int made = 0;
  for (const ExpressionStep& step : plan.steps) {
    const ExpressionNode& node = step.node;
    std::array<std::string, 3> x;
    for (std::size_t k = 0; k < 3; ++k) {
      if (node.arguments[k] >= 0) x[k] = slot[static_cast<std::size_t>(node.arguments[k])];
    }
    std::string value;
    const std::string k = text_of(node.input);
    if (node.function == Function::constant)
      value = number(node.value);
    else if (node.function == Function::channel)
      value = "(float)(column + i)";
    else if (node.function != Function::input)
      value = call(node, x[0], x[1], x[2]);
    else if (node.reads == Reads::element)
      value = "number(static_cast<const " + type_name(form.inputs[static_cast<std::size_t>(node.input)]) + "*>(o.in[" + k +
              "])[" + text_of(node.element) + "])";
    else if (node.reads == Reads::row)
      value = "number(r" + k + "[u])";
    else
      value = "number(x" + k + "[u].element[i])";
    const std::string name = "v" + text_of(made++);
    text += "      const float " + name + " = " + value + ";\n";
    slot[static_cast<std::size_t>(step.to)] = name;
  }
  for (std::size_t k = 0; k < plan.results.size(); ++k) {
    text += "      " + take(text_of(static_cast<int>(k)), slot[static_cast<std::size_t>(plan.results[k])]) + "\n";
  }
  return text;
}

/// Declarations of the packs of inputs, and statements that load them as in[u].
struct Loads {
  std::string declared, loaded;

  Loads(const Expressions& f, const MapForm& form) {
    for (std::size_t k = 0; k < form.inputs.size(); ++k) {
      const std::string n = text_of(static_cast<int>(k)), type = type_name(form.inputs[k]);
      const std::vector<Reads> found = f.reads_of(static_cast<int>(k));
      if (found.empty() || found[0] == Reads::element) continue;
      const Reads reads = found[0];
      if (reads == Reads::row) {
        declared += "  " + type + " r" + n + "[unroll];\n";
        loaded += "      r" + n + "[u] = static_cast<const " + type + "*>(o.in[" + n + "])[row * o.in_row[" + n + "]];\n";
        continue;
      }
      declared += "  Pack<" + type + ", N> x" + n + "[unroll];\n";
      const std::string row = reads == Reads::channel ? "" : "row * o.in_row[" + n + "] + ";
      loaded += "      x" + n + "[u] = load<N, " + type + ">(o.in[" + n + "], " + row + "column);\n";
    }
  }
};

/// The beginning of both kernels.
std::string head_of(const MapForm& form, int unroll) {
  const bool quick = std::all_of(form.outputs.begin(), form.outputs.end(), [](DType type) { return type == DType::bf16; });
  const char* const rounding = form.rounds_bf16
                                   ? "#define ROUND asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(to) : \"f\"(x));\n"
                                   : "#define ROUND const unsigned bits = __float_as_uint(x); "
                                     "to = x == x ? (bf16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16) : (bf16)0x7fff;\n";
  return rounding + std::string("constexpr bool quick = ") + (quick ? "true" : "false") +
         ";\nconstexpr int N = " + text_of(form.pack) + ", unroll = " + text_of(unroll) + ";\ntypedef " +
         (form.large ? "unsigned long long" : "unsigned") + " Count;" + prelude;
}

}  // namespace

std::string map_source(const Expressions& f, const MapForm& form) {
  const Loads loads(f, form);
  std::string packs, stored;
  for (std::size_t k = 0; k < form.outputs.size(); ++k) {
    const std::string n = text_of(static_cast<int>(k)), type = type_name(form.outputs[k]);
    packs += "    Pack<" + type + ", N> y" + n + ";\n";
    stored += "    store<N, " + type + ">(o.out[" + n + "], row * o.out_row[" + n + "] + column, y" + n + ");\n";
  }
  const std::string place =
      form.flat
          ? "    const Count of_matrix = pack + (Count)o.first;\n"
            "    const long long row = of_matrix / (Count)o.columns, column = of_matrix % (Count)o.columns * (long long)N;\n"
      : form.rows ? "    const long long row = pack / (Count)o.columns, column = pack % (Count)o.columns * (long long)N;\n"
                  : "    const long long row = 0, column = pack * (long long)N;\n";
  const std::string pack = "    const Count pack = first + u * " + text_of(map_threads) + ";\n";
  const auto store = [](const std::string& k, const std::string& value) {
    return "round_to(y" + k + ".element[i], " + value + ");";
  };
  return head_of(form, map_unroll) + "extern \"C\" __global__ void __launch_bounds__(" + text_of(map_threads) + ") " +
         map_kernel_name + "(const Operands o) {\n  const Count first = (Count)blockIdx.x * " +
         text_of(map_threads * map_unroll) + " + threadIdx.x;\n" + loads.declared +
         "#pragma unroll\n  for (int u = 0; u < unroll; ++u) {\n" + pack + "    if (pack < (Count)o.packs) {\n" + place +
         loads.loaded + "    }\n  }\n#pragma unroll\n  for (int u = 0; u < unroll; ++u) {\n" + pack +
         "    if (pack >= (Count)o.packs) continue;\n" + place + packs + "#pragma unroll\n    for (int i = 0; i < N; ++i) {\n" +
         element_body(f, form, store) + "    }\n" + stored + "  }\n}\n";
}

namespace {

/// The statements of a reduction. The logarithm of a sum of exponentials keeps `total`, the largest, and `sum` of those behind
/// it.
struct Joining {
  kernels::ReduceBy by;

  std::string begin() const {
    if (by == kernels::ReduceBy::sum) return "  float total = 0.0f;\n";
    return "  float total = -__int_as_float(0x7f800000), sum = 0.0f;\n";
  }
  std::string with(const std::string& value) const {
    if (by == kernels::ReduceBy::sum) return "total += " + value + ";";
    if (by == kernels::ReduceBy::largest) return "total = total > " + value + " ? total : " + value + ";";
    return "join(total, sum, " + value + ", 1.0f);";
  }
  std::string lanes() const {
    const std::string shuffled = "__shfl_xor_sync(0xffffffffu, ";
    if (by != kernels::ReduceBy::logsumexp)
      return "    const float other = " + shuffled + "total, lane);\n    " + with("other") + "\n";
    return "    const float other = " + shuffled + "total, lane), others = " + shuffled +
           "sum, lane);\n    join(total, sum, other, others);\n";
  }
  std::string result() const { return by == kernels::ReduceBy::logsumexp ? "total + logf(sum)" : "total"; }
};

/// Adds the exponentials of a part, whose largest is `largest`, to those of another.
constexpr const char* join = R"(
__device__ __forceinline__ void join(float& total, float& sum, float largest, float part) {
  if (largest > total) {
    sum = sum * expf(total - largest) + part;
    total = largest;
  } else if (part > 0.0f) {
    sum += part * expf(largest - total);
  }
}
)";

}  // namespace

std::string reduce_source(const Expressions& f, const MapForm& form, kernels::ReduceBy by) {
  const Loads loads(f, form);
  const Joining joining{by};
  const auto take = [&](const std::string&, const std::string& value) { return joining.with(value); };
  return head_of(form, 1) + join + "extern \"C\" __global__ void __launch_bounds__(" + text_of(map_threads) + ") " +
         reduce_kernel_name + "(const Operands o) {\n  const Count row = (Count)blockIdx.x * " + text_of(reduce_rows) +
         " + threadIdx.x / 32;\n  if (row >= (Count)o.packs) return;\n" + joining.begin() + "  const int u = 0;\n" +
         loads.declared +
         "  for (Count pack = threadIdx.x % 32; pack < (Count)o.columns; pack += 32) {\n"
         "    const long long column = pack * (long long)N;\n" +
         loads.loaded + "#pragma unroll\n    for (int i = 0; i < N; ++i) {\n" + element_body(f, form, take) +
         "    }\n  }\n#pragma unroll\n  for (int lane = 16; lane > 0; lane /= 2) {\n" + joining.lanes() +
         "  }\n  if (threadIdx.x % 32 == 0) round_to(static_cast<" + type_name(form.outputs[0]) +
         "*>(o.out[0])[row * o.out_row[0]], " + joining.result() + ");\n}\n";
}

std::string margin_tiles_source(const Expressions& f, const MapForm& form) {
  const Loads loads(f, form);
  const auto take = [](const std::string&, const std::string& value) {
    return "total[k][i] += " + value + "; sum += " + value + ";";
  };
  const std::string each = text_of(margin_columns / 32 / form.pack), warps = text_of(map_threads / 32);
  return head_of(form, 1) + "constexpr int K = " + each + ", warps = " + warps +
         ";\nextern \"C\" __global__ void __launch_bounds__(" + text_of(map_threads) + ") " + margin_tiles_name +
         R"((const Operands o) {
  __shared__ float sums[warps][32 * K * N];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, u = 0;
  const long long tiles = (o.columns + 32 * K - 1) / (32 * K), tile = blockIdx.x % tiles, chunk = blockIdx.x / tiles;
  const long long first_row = o.first / o.columns;
  float total[K][N] = {};
  for (long long n = warp; n < o.chunk_rows; n += warps) {
    const long long at = chunk * o.chunk_rows + n, row = first_row + at;
    if (at >= o.rows) break;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const long long of_row = (tile * K + k) * 32 + lane, pack = row * o.columns + of_row, column = of_row * N;
      if (of_row >= o.columns || pack < o.first || pack >= o.first + o.packs) continue;
)" + loads.declared +
         loads.loaded + "#pragma unroll\n    for (int i = 0; i < N; ++i) {\n" + element_body(f, form, take) + R"(    }
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    if (lane == 0 && o.out[0]) static_cast<float*>(o.out[3])[at * tiles + tile] = sum;
  }
#pragma unroll
  for (int k = 0; k < K; ++k)
    for (int i = 0; i < N; ++i) sums[warp][(k * 32 + lane) * N + i] = total[k][i];
  __syncthreads();
  for (int c = threadIdx.x; c < 32 * K * N; c += 32 * warps) {
    const long long column = tile * 32 * K * N + c;
    if (column >= o.columns * N) continue;
    float sum = 0.0f;
    for (int w = 0; w < warps; ++w) sum += sums[w][c];
    static_cast<float*>(o.out[2])[chunk * o.columns * N + column] = sum;
  }
}
)";
}

std::string margin_sums_source() {
  return head_of({}, 1) + "extern \"C\" __global__ void __launch_bounds__(" + text_of(map_threads) + ") " + margin_sums_name +
         "(const Operands o) {\n  constexpr long long each = " + text_of(margin_columns) + ", threads = " + text_of(map_threads) +
         R"(;
  const long long at = blockIdx.x * threads + threadIdx.x;
  float sum = 0.0f;
  if (at < o.columns) {
#pragma unroll 8
    for (long long chunk = 0; chunk < o.packs; ++chunk) sum += static_cast<const float*>(o.out[2])[chunk * o.columns + at];
    static_cast<float*>(o.out[1])[at] = sum;
  } else if (o.out[0] && at - o.columns < o.all_rows) {
    const long long row = at - o.columns - o.first / o.columns, tiles = (o.columns + each - 1) / each;
    for (long long tile = 0; tile < tiles && row >= 0 && row < o.rows; ++tile)
      sum += static_cast<const float*>(o.out[3])[row * tiles + tile];
    static_cast<float*>(o.out[0])[at - o.columns] = sum;
  }
}
)";
}

}  // namespace consist::cuda
