#include "plugins/devices/cuda/matmul.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/kernels/random_fill.h"

namespace consist::cuda {
namespace {

/// cuBLASLt's advice for Hopper is 32 MiB; more gains nothing.
constexpr std::int64_t workspace_limit = std::int64_t{32} << 20;

/// What the addresses of columns of a wider matrix divide by (column_alignment in core/passes/pack_linears.h).
constexpr std::uint32_t column_bytes = 16;

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      throw UnavailableError("device 'cuda' multiplies no " + std::string(name_of(type)) + " matrices");
  }
}

std::int32_t scale_mode(Scaling scaling) {
#if CUDART_VERSION >= 12090
  switch (scaling) {
    case Scaling::row:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scaling::block_1d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::block_2d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
#else
  throw UnavailableError("device 'cuda' was built with a CUDA before 12.9, whose cuBLASLt has no scales per " +
                         std::string(name_of(scaling)) + "; use --fp8.scaling tensor or delayed");
#endif
}

/// How many scales `rows` of k elements have.
std::int64_t scale_count(Scaling scaling, std::int64_t rows, std::int64_t k) {
  if (scaling == Scaling::row) return rows;
  if (scaling == Scaling::block_1d) return scale_blocks(k) * rows;
  return scaling == Scaling::block_2d ? scale_blocks(rows) * square_stride(k) : 1;
}

std::string pitch_text(const char* of, std::int64_t pitch) {
  return pitch == 0 ? "" : of + std::to_string(pitch);
}

/// What decides which algorithm is best, as a word of the cache file.
std::string key_of(const MatmulShape& s, bool tf32) {
  std::ostringstream text;
  text << s.m << 'x' << s.n << 'x' << s.k << (s.transpose_a ? 't' : 'n') << (s.transpose_b ? 't' : 'n') << '.' << name_of(s.a)
       << '.' << name_of(s.b) << '.' << name_of(s.d) << (s.add ? "+d" : "") << (s.bias ? "+bias" : "")
       << pitch_text("+a", s.a_pitch) << pitch_text("+d", s.d_pitch) << (s.fast_accumulation ? "+fast" : "")
       << (s.a_scaling != Scaling::tensor ? "+" : "")
       << (s.a_scaling != Scaling::tensor ? std::string(name_of(s.a_scaling)) + "." + std::string(name_of(s.b_scaling)) : "")
       << (s.a == DType::f32 && tf32 ? ".tf32" : "");
  return text.str();
}

/// Memory of the GPU for the time of a search.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) {
    check(cudaMalloc(&memory_, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256))),
          "memory for the search of a matrix product's algorithm");
  }
  ~Scratch() { cudaFree(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

struct EventPair {
  cudaEvent_t begin = nullptr, end = nullptr;
  EventPair() {
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~EventPair() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
};

std::string device_word() {
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string name = properties.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
  return name;
}

}  // namespace

/// Row-major D = op(A) op(B) is column-major Dᵀ = op(B)ᵀ op(A)ᵀ: cuBLASLt gets B first.
struct Matmul::Description {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  MatmulShape shape;

  Description(const MatmulShape& s, cublasComputeType_t compute) : shape(s) {
    const cublasOperation_t op_first = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_second = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_second);
    if (s.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(s.d));
    }
    if (s.fast_accumulation) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    if (s.a_scaling != Scaling::tensor) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(s.b_scaling));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(s.a_scaling));
      // With such scales cuBLASLt's heuristic refuses a descriptor without pointers (NVIDIA/CUDALibrarySamples, issue 274). It
      // reads nothing there; enqueue() sets the real ones.
      const void* const aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned);
    }
    auto layout = [](cublasLtMatrixLayout_t* made, DType type, std::int64_t rows, std::int64_t columns, std::int64_t pitch = 0) {
      check(cublasLtMatrixLayoutCreate(made, cuda_type(type), static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), pitch == 0 ? rows : pitch),
            "cublasLtMatrixLayoutCreate");
    };
    // Column-major: the fast dimension, which is the row-major one's last, comes first.
    s.transpose_b ? layout(&first, s.b, s.k, s.n) : layout(&first, s.b, s.n, s.k);
    s.transpose_a ? layout(&second, s.a, s.m, s.k, s.a_pitch) : layout(&second, s.a, s.k, s.m, s.a_pitch);
    layout(&result, s.d, s.n, s.m, s.d_pitch);
  }
  ~Description() {
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatrixLayoutDestroy(second);
    cublasLtMatrixLayoutDestroy(first);
    cublasLtMatmulDescDestroy(operation);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  cublasStatus_t enqueue(cublasLtHandle_t handle, const MatmulOperands& o, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                         std::int64_t workspace_bytes, cudaStream_t stream) const {
    if (shape.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    if (shape.scaled) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.b_scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.a_scale);
    }
    const float one = 1, beta = shape.add ? 1.0F : 0.0F;
    return cublasLtMatmul(handle, operation, &one, o.b, first, o.a, second, &beta, o.d, result, o.d, result, &algorithm,
                          workspace, static_cast<std::size_t>(workspace_bytes), stream);
  }
};

MatmulLibrary::MatmulLibrary(bool tf32, int search, std::string cache_folder) : tf32_(tf32), search_(search) {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
  if (!cache_folder.empty())
    cache_path_ = cache_folder + "/matmul-" + device_word() + "-cublaslt" + std::to_string(cublasLtGetVersion()) + ".txt";
  load();
}

MatmulLibrary::~MatmulLibrary() {
  save();
  cublasLtDestroy(handle_);
}

cublasComputeType_t MatmulLibrary::compute_type(DType type) const noexcept {
  return type == DType::f32 && tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtMatmulAlgo_t MatmulLibrary::algorithm(const MatmulShape& shape, std::int64_t workspace) {
  const std::string key = key_of(shape, tf32_);
  if (auto found = known_.find(key); found != known_.end()) {
    // The file is the user's: what it says is used only if the library agrees that it fits.
    const Matmul::Description description(shape, compute_type(shape.a));
    cublasLtMatmulHeuristicResult_t result{};
    if (cublasLtMatmulAlgoCheck(handle_, description.operation, description.first, description.second, description.result,
                                description.result, &found->second, &result) == CUBLAS_STATUS_SUCCESS &&
        static_cast<std::int64_t>(result.workspaceSize) <= workspace) {
      return found->second;
    }
  }
  const cublasLtMatmulAlgo_t best = search_for(shape, workspace);
  known_[key] = best;
  changed_ = true;
  return best;
}

cublasLtMatmulAlgo_t MatmulLibrary::search_for(const MatmulShape& shape, std::int64_t workspace) {
  const Matmul::Description description(shape, compute_type(shape.a));
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owned(
      preference, cublasLtMatmulPreferenceDestroy);
  const auto limit = static_cast<std::size_t>(workspace);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit),
        "cublasLtMatmulPreferenceSetAttribute");
  // Parts of a split sum are added in a fixed order, never by atomics: a run repeats to the bit.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                             sizeof reductions),
        "cublasLtMatmulPreferenceSetAttribute");

  // Columns of a wider matrix need not begin where matrices do; A here is cuBLASLt's B.
  const auto begins_at = [&](cublasLtMatmulPreferenceAttributes_t attribute) {
    const std::uint32_t bytes = column_bytes;
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &bytes, sizeof bytes),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  if (shape.a_pitch != 0) begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  if (shape.d_pitch != 0) {
    begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
    begins_at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> proposals(static_cast<std::size_t>(std::max(search_, 1)));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, description.operation, description.first, description.second, description.result, description.result, preference,
      static_cast<int>(proposals.size()), proposals.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    throw UnavailableError("cuBLASLt has no algorithm for the matrix product " + key_of(shape, tf32_) + ": " +
                           cublasLtGetStatusString(status));
  }
  proposals.resize(static_cast<std::size_t>(found));
  if (search_ == 0 || found == 1) return proposals[0].algo;

  ++searches_;
  const auto bytes = [](std::int64_t elements, DType type) { return elements * static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t a_rows = shape.transpose_a ? shape.k : shape.m, a_columns = shape.transpose_a ? shape.m : shape.k;
  const std::int64_t a_elements = a_rows * std::max(a_columns, shape.a_pitch),
                     d_elements = shape.m * std::max(shape.n, shape.d_pitch);
  const Scratch a(bytes(a_elements, shape.a)), b(bytes(shape.k * shape.n, shape.b)), d(bytes(d_elements, shape.d)),
      bias(bytes(shape.n, shape.d)), space(workspace);
  // Power, and with it the clock, depends on the data: zeros would be timed too fast.
  fill_random(a.get(), a_elements, shape.a, 1, nullptr);
  fill_random(b.get(), shape.k * shape.n, shape.b, 2, nullptr);
  check(cudaMemset(d.get(), 0, static_cast<std::size_t>(bytes(d_elements, shape.d))), "cudaMemset");
  check(cudaMemset(bias.get(), 0, static_cast<std::size_t>(bytes(shape.n, shape.d))), "cudaMemset");

  const std::vector<float> ones(static_cast<std::size_t>(std::max(scale_count(shape.a_scaling, shape.m, shape.k),
                                                                  scale_count(shape.b_scaling, shape.n, shape.k))),
                                1.0F);
  const Scratch scale(static_cast<std::int64_t>(ones.size() * sizeof(float)));
  check(cudaMemcpy(scale.get(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  const MatmulOperands operands{
      .a = a.get(), .b = b.get(), .d = d.get(), .bias = bias.get(), .a_scale = scale.get(), .b_scale = scale.get()};

  const EventPair events;
  auto time_of = [&](const cublasLtMatmulAlgo_t& algorithm, int repetitions) -> float {
    check(cudaEventRecord(events.begin, nullptr), "cudaEventRecord");
    for (int i = 0; i < repetitions; ++i) {
      if (description.enqueue(handle_, operands, algorithm, space.get(), workspace, nullptr) != CUBLAS_STATUS_SUCCESS) return -1;
    }
    check(cudaEventRecord(events.end, nullptr), "cudaEventRecord");
    check(cudaEventSynchronize(events.end), "a matrix product under test");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events.begin, events.end), "cudaEventElapsedTime");
    return milliseconds / static_cast<float>(repetitions);
  };
  // Each proposal twice, in turn, and the better time of both: the clock of the first one is not yet that of the last. No clock
  // makes up for a quarter, so the second look is at those that came near.
  // What takes a millisecond on any GPU of today is long beside the events' resolution: one run of it says as much as several. A
  // head over 128 k tokens takes 25 ms, and its searches took most of a run's start.
  const bool is_long = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) > 1e12;
  const int repetitions = is_long ? 1 : 3;
  std::vector<float> best_of(proposals.size(), -1);
  float near = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < proposals.size(); ++i) {
      if (round > 0 && best_of[i] < 0) continue;
      if (round == 2 && best_of[i] > near) continue;
      const float once = time_of(proposals[i].algo, round == 0 ? 1 : repetitions);
      if (round == 0) {
        best_of[i] = once < 0 ? -1 : 1e30F;
      } else if (once > 0) {
        best_of[i] = std::min(best_of[i], once);
        near = near == 0 ? 1.25F * once : std::min(near, 1.25F * once);
      }
    }
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < proposals.size(); ++i) {
    if (best_of[i] > 0 && (best_of[best] <= 0 || best_of[i] < best_of[best])) best = i;
  }
  if (best_of[best] <= 0)
    throw UnavailableError("cuBLASLt proposes algorithms for the matrix product " + key_of(shape, tf32_) +
                           ", but none of them runs");
  return proposals[best].algo;
}

void MatmulLibrary::load() {
  if (cache_path_.empty()) return;
  std::ifstream file(cache_path_);
  std::string key, digits;
  while (file >> key >> digits) {
    cublasLtMatmulAlgo_t algorithm{};
    auto* bytes = reinterpret_cast<unsigned char*>(&algorithm);
    if (digits.size() != 2 * sizeof algorithm || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      continue;  // of another program or cut off: searched anew
    for (std::size_t i = 0; i < sizeof algorithm; ++i)
      bytes[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    known_[key] = algorithm;
  }
}

void MatmulLibrary::save() noexcept {
  if (!changed_ || cache_path_.empty()) return;
  changed_ = false;
  try {
    std::filesystem::create_directories(std::filesystem::path(cache_path_).parent_path());
    const std::string temporary = cache_path_ + "." + std::to_string(getpid());
    {
      std::ofstream file(temporary, std::ios::trunc);
      for (const auto& [key, algorithm] : known_) {
        file << key << ' ';
        const auto* bytes = reinterpret_cast<const unsigned char*>(&algorithm);
        for (std::size_t i = 0; i < sizeof algorithm; ++i) {
          char two[3];
          std::snprintf(two, sizeof two, "%02x", bytes[i]);
          file << two;
        }
        file << '\n';
      }
      file.flush();
      if (!file) throw SystemError("cannot write " + temporary);
    }
    std::filesystem::rename(temporary, cache_path_);
  } catch (const std::exception& error) {
    log::warn("the algorithms of matrix products are not kept for the next run: " + std::string(error.what()));
  }
}

Matmul::Matmul(MatmulLibrary& library, const MatmulShape& shape)
    : description_(new Description(shape, library.compute_type(shape.a))), handle_(library.handle()) {
  try {
    algorithm_ = library.algorithm(shape, workspace_limit);
    cublasLtMatmulHeuristicResult_t result{};
    check(cublasLtMatmulAlgoCheck(handle_, description_->operation, description_->first, description_->second,
                                  description_->result, description_->result, &algorithm_, &result),
          "cublasLtMatmulAlgoCheck");
    workspace_bytes_ = static_cast<std::int64_t>(result.workspaceSize);
  } catch (...) {
    delete description_;
    throw;
  }
}

Matmul::~Matmul() {
  delete description_;
}

Matmul::Matmul(Matmul&& other) noexcept
    : description_(std::exchange(other.description_, nullptr)),
      handle_(other.handle_),
      algorithm_(other.algorithm_),
      workspace_bytes_(other.workspace_bytes_) {}

void Matmul::enqueue(const void* a, const void* b, void* d, const void* bias, void* workspace, cudaStream_t stream) const {
  enqueue({.a = a, .b = b, .d = d, .bias = bias}, workspace, stream);
}

void Matmul::enqueue(const MatmulOperands& operands, void* workspace, cudaStream_t stream) const {
  check(description_->enqueue(handle_, operands, algorithm_, workspace, workspace_bytes_, stream), "cublasLtMatmul");
}

}  // namespace consist::cuda
