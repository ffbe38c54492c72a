// Kernels of squared_relu and squared_relu_grad for the device "cuda".
#include <consist/error.h>
#include <consist/kernel_registry.h>
#include <consist/plugin.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace {

using namespace consist;

constexpr int threads = 256;

__device__ float number(float x) { return x; }
__device__ float number(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void store(float& to, float x) { to = x; }
__device__ void store(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

template <typename T>
__global__ void squared_relu(const T* x, T* y, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  const float positive = fmaxf(number(x[i]), 0.0F);
  store(y[i], positive * positive);
}

template <typename T>
__global__ void squared_relu_grad(const T* dy, const T* x, T* dx, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) store(dx[i], number(dy[i]) * 2.0F * fmaxf(number(x[i]), 0.0F));
}

/// With two inputs the gradient.
template <typename T>
class SquaredRelu final : public Kernel {
 public:
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void*, NativeQueue queue) override {
    const auto stream = static_cast<cudaStream_t>(queue);
    const long long count = outputs[0].shape.elements();
    if (count == 0) return;
    const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
    if (inputs.size() == 1)
      squared_relu<<<blocks, threads, 0, stream>>>(inputs[0].as<T>(), outputs[0].as<T>(), count);
    else
      squared_relu_grad<<<blocks, threads, 0, stream>>>(inputs[0].as<T>(), inputs[1].as<T>(), outputs[0].as<T>(), count);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
      throw SystemError(std::string("squared_relu cannot be launched: ") + cudaGetErrorString(error));
  }
};

class CudaKernels final : public KernelSet {
 public:
  explicit CudaKernels(const Options&) {}
  std::vector<KernelKey> keys() const override {
    return {{"cuda", "squared_relu", {DType::f32, DType::bf16}}, {"cuda", "squared_relu_grad", {DType::f32, DType::bf16}}};
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    if (request.inputs[0].dtype == DType::f32) return std::make_unique<SquaredRelu<float>>();
    return std::make_unique<SquaredRelu<__nv_bfloat16>>();
  }
  std::vector<KernelExample> examples() const override {
    const TensorType x{DType::bf16, {2, 3, 8}};
    return {{"squared_relu", {x}, {}}, {"squared_relu_grad", {x, x}, {}}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CudaKernels, "squared-relu-cuda", "1.0.0", "max(x, 0) squared, an op of its own, on cuda");
CONSIST_PLUGIN_NO_OPTIONS();
