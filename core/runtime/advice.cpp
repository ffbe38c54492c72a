#include "core/runtime/advice.h"

#include <cmath>

#include "consist/text.h"

namespace consist {
namespace {

constexpr double nearly_empty = 0.25;  // of the device's memory
constexpr double full = 0.9;           // what batches are grown to: the rest is the safety that people leave

std::int64_t bytes_at_peak(const ProgramSummary& summary, const std::string& role) {
  for (const MemoryShare& share : summary.memory) {
    if (share.what == role) return share.bytes;
  }
  return 0;
}

std::string share_text(std::int64_t part, std::int64_t whole) {
  return bytes_text(part) + " of " + bytes_text(whole) + " (" +
         fixed_text(100 * static_cast<double>(part) / static_cast<double>(whole), 0) + "%)";
}

/// Bytes that parameters, gradients and optimizer states take on a rank that has all of them.
std::int64_t whole_states(const DTypes& d, std::int64_t parameters) {
  const std::size_t each =
      size_of(d.parameter) + size_of(d.gradient) + (d.master ? size_of(*d.master) : 0) + 2 * size_of(d.moment);
  return parameters * static_cast<std::int64_t>(each);
}

std::string about_precision(const RunConfig& config, const DTypes& dtypes, const DeviceInfo& device) {
  if (dtypes.parameter != DType::f32 || device.peak_flops_bf16 < 2 * device.peak_flops_fp32) return {};
  return config.precision + ": this device multiplies bf16 at up to " + si_text(device.peak_flops_bf16) + "FLOP/s, fp32 at " +
         si_text(device.peak_flops_fp32) + "FLOP/s. --precision bf16 keeps masters, moments and gradients in fp32";
}

std::string about_memory(const RunConfig& config, const DeviceInfo& device, const ProgramSummary& summary) {
  const auto planned = static_cast<double>(summary.planned_bytes), there = static_cast<double>(device.memory_bytes);
  if (there <= 0 || planned >= nearly_empty * there) return {};
  const double activations = static_cast<double>(bytes_at_peak(summary, "activation"));
  const std::string text = "the plan uses " + share_text(summary.planned_bytes, device.memory_bytes) + " of the device's memory";
  if (activations <= 0) return text;
  const double grown = static_cast<double>(config.batch) * (full * there - (planned - activations)) / activations;
  return text + ": about --batch " + std::to_string(static_cast<std::int64_t>(grown)) + " instead of " +
         std::to_string(config.batch) +
         " would fill it. Larger products run faster, up to a point that consist compare --batch " +
         std::to_string(config.batch) + "," + std::to_string(4 * config.batch) + " shows";
}

std::string about_zero(const RunConfig& config, const DTypes& dtypes, const Layout& layout, const DeviceInfo& device,
                       const ProgramSummary& summary) {
  const bool only_zero = layout.active.size() == 1 && layout.active[0].name.starts_with("zero");
  if (!only_zero || device.memory_bytes <= 0) return {};
  const std::int64_t states =
      bytes_at_peak(summary, "parameter") + bytes_at_peak(summary, "gradient") + bytes_at_peak(summary, "optimizer_state");
  const std::int64_t with_ddp = summary.planned_bytes - states + whole_states(dtypes, summary.parameters);
  if (static_cast<double>(with_ddp) > full * static_cast<double>(device.memory_bytes)) return {};
  return text_of(config.strategies) + " saves memory that is not short: ddp would take about " +
         share_text(with_ddp, device.memory_bytes) + ". consist compare --strategy ddp," + layout.active[0].name +
         " shows what its communication costs";
}

std::string about_gathers(const DTypes& dtypes, const Layout& layout, const DeviceInfo& device, const ProgramSummary& summary) {
  // Along the only axis, over which sequences are divided, nothing but parameters is gathered.
  if (layout.active.size() != 1 || layout.batch_axes.empty() || summary.planned_host_bytes > 0) return {};
  const std::string& name = layout.active[0].name;
  const std::int64_t whole = summary.parameters * static_cast<std::int64_t>(size_of(dtypes.parameter));
  double gathered = 0;  // by all ranks together
  for (const CollectiveSummary& c : summary.collectives) {
    if (c.gathers) gathered += static_cast<double>(c.bytes) * layout.mesh.ranks();
  }
  const double times = gathered / static_cast<double>(whole);
  const std::int64_t kept = summary.planned_bytes + whole;  // at most: some are there already at the peak
  if (times < 1.5 || static_cast<double>(kept) > full * static_cast<double>(device.memory_bytes)) return {};
  return name + " gathers each parameter " + fixed_text(times, 1) +
         " times a step to save memory that is not short: kept from its first to its last use, at most " +
         share_text(kept, device.memory_bytes) + " would be taken. --" + name + ".max_live_parameters 1e12 --" + name +
         ".max_reuse_distance 1e12 keep it";
}

}  // namespace

std::vector<std::string> advise(const RunConfig& config, const DTypes& dtypes, const Layout& layout, const DeviceInfo& device,
                                const ProgramSummary& summary) {
  std::vector<std::string> all;
  if (device.peak_flops_bf16 <= 0) return all;  // a processor, or a GPU that is not known here
  for (const std::string& text :
       {about_precision(config, dtypes, device), about_memory(config, device, summary),
        about_zero(config, dtypes, layout, device, summary), about_gathers(dtypes, layout, device, summary)}) {
    if (!text.empty()) all.push_back(text);
  }
  return all;
}

}  // namespace consist
