#include "plugins/devices/cuda/sensors.h"

#include <dlfcn.h>

#include <limits>

#include "plugins/devices/cuda/nvml_api.h"

namespace consist::cuda {

/// NVML's functions, by name.
struct Sensors::Library {
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  nvml::Init* init = symbol<nvml::Init>("nvmlInit_v2");
  nvml::Init* shutdown = symbol<nvml::Init>("nvmlShutdown");
  nvml::DriverVersion* driver_version = symbol<nvml::DriverVersion>("nvmlSystemGetDriverVersion");
  nvml::ErrorString* error_string = symbol<nvml::ErrorString>("nvmlErrorString");
  nvml::ByBusId* by_bus_id = symbol<nvml::ByBusId>("nvmlDeviceGetHandleByPciBusId_v2");
  nvml::Utilization* utilization = symbol<nvml::Utilization>("nvmlDeviceGetUtilizationRates");
  nvml::Memory* memory = symbol<nvml::Memory>("nvmlDeviceGetMemoryInfo");
  nvml::Number* power = symbol<nvml::Number>("nvmlDeviceGetPowerUsage");
  nvml::NumberOf* temperature = symbol<nvml::NumberOf>("nvmlDeviceGetTemperature");
  nvml::NumberOf* clock = symbol<nvml::NumberOf>("nvmlDeviceGetClockInfo");
  nvml::Fields* fields = symbol<nvml::Fields>("nvmlDeviceGetFieldValues");
  nvml::NumberOf* pcie = symbol<nvml::NumberOf>("nvmlDeviceGetPcieThroughput");
  bool started = false;

  bool complete() const {
    return init != nullptr && shutdown != nullptr && error_string != nullptr && by_bus_id != nullptr && utilization != nullptr &&
           memory != nullptr && power != nullptr && temperature != nullptr && clock != nullptr && fields != nullptr &&
           pcie != nullptr;
  }
  ~Library() {
    if (started) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

 private:
  template <typename F>
  F* symbol(const char* name) {
    return handle == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(handle, name));
  }
};

Sensors::Sensors(const std::string& pci_bus_id) : library_(std::make_unique<Library>()) {
  if (!library_->complete()) {
    why_ = "libnvidia-ml.so.1 (NVML, part of the driver) cannot be loaded";
    return;
  }
  if (const nvmlReturn_t status = library_->init(); status != 0) {
    why_ = std::string("nvmlInit: ") + library_->error_string(status);
    return;
  }
  library_->started = true;
  nvmlDevice_t device = nullptr;
  if (const nvmlReturn_t status = library_->by_bus_id(pci_bus_id.c_str(), &device); status != 0) {
    why_ = "NVML does not know the GPU at " + pci_bus_id + ": " + library_->error_string(status);
    return;
  }
  device_ = device;
}

Sensors::~Sensors() = default;

std::string Sensors::driver_version() const {
  char text[96] = {};  // NVML's NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
  if (!library_->started || library_->driver_version == nullptr || library_->driver_version(text, sizeof text - 1) != 0)
    return {};
  return text;
}

std::vector<DeviceReading> Sensors::read() const {
  if (device_ == nullptr) return {};
  const Library& library = *library_;
  auto* device = static_cast<nvmlDevice_t>(device_);
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<DeviceReading> readings;
  auto add = [&](const char* name, const char* unit, bool known, double value) {
    readings.push_back({name, unit, known ? value : unknown});
  };

  nvmlUtilization_t use{};
  const bool use_known = library.utilization(device, &use) == 0;
  add("gpu_use", "1", use_known, use.gpu / 100.0);
  add("memory_controller_use", "1", use_known, use.memory / 100.0);
  nvmlMemory_t memory{};
  const bool memory_known = library.memory(device, &memory) == 0;
  add("memory_used", "B", memory_known, static_cast<double>(memory.used));
  unsigned value = 0;
  bool known = library.power(device, &value) == 0;
  add("power", "W", known, value / 1000.0);
  known = library.temperature(device, nvml::temperature_gpu, &value) == 0;
  add("temperature", "degC", known, value);
  known = library.clock(device, nvml::clock_sm, &value) == 0;
  add("sm_clock", "Hz", known, value * 1e6);
  known = library.clock(device, nvml::clock_memory, &value) == 0;
  add("memory_clock", "Hz", known, value * 1e6);

  nvmlFieldValue_t fields[2] = {};
  fields[0].fieldId = nvml::nvlink_data_sent;
  fields[1].fieldId = nvml::nvlink_data_received;
  fields[0].scopeId = fields[1].scopeId = nvml::all_links;
  const bool answered = library.fields(device, 2, fields) == 0;
  const char* names[] = {"nvlink_sent", "nvlink_received"};
  for (int i = 0; i < 2; ++i)
    add(names[i], "B", answered && fields[i].nvmlReturn == 0, static_cast<double>(fields[i].value.ullVal) * 1024);
  known = library.pcie(device, nvml::pcie_sent, &value) == 0;
  add("pcie_sent", "B/s", known, value * 1024.0);
  known = library.pcie(device, nvml::pcie_received, &value) == 0;
  add("pcie_received", "B/s", known, value * 1024.0);
  return readings;
}

}  // namespace consist::cuda
