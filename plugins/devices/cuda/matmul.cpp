#include "plugins/devices/cuda/matmul.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "plugins/devices/cuda/check.h"
#include "plugins/devices/cuda/matmul_description.h"
#include "plugins/devices/cuda/matmul_search.h"

namespace consist::cuda {
namespace {

/// cuBLASLt's advice for Hopper is 32 MiB; more gains nothing.
constexpr std::int64_t workspace_limit = std::int64_t{32} << 20;

std::string row_stride_text(const char* of, std::int64_t row_stride) {
  return row_stride == 0 ? "" : of + std::to_string(row_stride);
}

/// Returns all that decides which algorithm is best, as a word of the cache file.
std::string key_of(const MatmulShape& s, bool tf32) {
  std::ostringstream text;
  text << s.m << 'x' << s.n << 'x' << s.k << (s.transpose_a ? 't' : 'n') << (s.transpose_b ? 't' : 'n') << '.' << name_of(s.a)
       << '.' << name_of(s.b) << '.' << name_of(s.d) << (s.add ? "+d" : "") << (s.bias ? "+bias" : "")
       << row_stride_text("+a", s.a_row_stride) << row_stride_text("+d", s.d_row_stride) << (s.fast_accumulation ? "+fast" : "")
       << (s.a_scaling != Scaling::tensor ? "+" : "")
       << (s.a_scaling != Scaling::tensor ? std::string(name_of(s.a_scaling)) + "." + std::string(name_of(s.b_scaling)) : "")
       << (s.a == DType::f32 && tf32 ? ".tf32" : "");
  return text.str();
}

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
    cublasLtMatmulHeuristicResult_t result{};
    if (MatmulDescription(shape, compute_type(shape.a)).check_algorithm(handle_, found->second, result) ==
            CUBLAS_STATUS_SUCCESS &&
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
  const MatmulDescription description(shape, compute_type(shape.a));
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(static_cast<std::size_t>(std::max(search_, 1)));
  int found = 0;
  const cublasStatus_t status =
      description.propose(handle_, workspace, static_cast<int>(proposals.size()), proposals.data(), found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    throw UnavailableError("cuBLASLt has no algorithm for the matrix product " + key_of(shape, tf32_) + ": " +
                           cublasLtGetStatusString(status));
  }
  proposals.resize(static_cast<std::size_t>(found));
  if (search_ == 0 || found == 1) return proposals[0].algo;

  ++searches_;
  const int best = fastest_of(proposals, description, handle_, workspace);
  if (best < 0) {
    throw UnavailableError("cuBLASLt proposes algorithms for the matrix product " + key_of(shape, tf32_) +
                           ", but none of them runs");
  }
  return proposals[static_cast<std::size_t>(best)].algo;
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
    : description_(std::make_unique<MatmulDescription>(shape, library.compute_type(shape.a))), handle_(library.handle()) {
  algorithm_ = library.algorithm(shape, workspace_limit);
  cublasLtMatmulHeuristicResult_t result{};
  check(description_->check_algorithm(handle_, algorithm_, result), "cublasLtMatmulAlgoCheck");
  workspace_bytes_ = static_cast<std::int64_t>(result.workspaceSize);
}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&& other) noexcept = default;

void Matmul::enqueue(const void* a, const void* b, void* d, const void* bias, void* workspace, cudaStream_t stream) const {
  enqueue({.a = a, .b = b, .d = d, .bias = bias}, workspace, stream);
}

void Matmul::enqueue(const MatmulOperands& operands, void* workspace, cudaStream_t stream) const {
  check(description_->enqueue(handle_, operands, algorithm_, workspace, workspace_bytes_, stream), "cublasLtMatmul");
}

}  // namespace consist::cuda
