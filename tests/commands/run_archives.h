// Archives of runs that were never made, for commands that read them, and what those show.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/archive/archive.h"

namespace consist::test {

struct ArchivedRun {
  int done = 60, steps = 100;
  std::vector<double> power = {};  ///< W, by step; empty: the device has no such sensor
  std::string price = {};
  std::string device = "NVIDIA H200", machine = "h200", origin = "the device's";
  int ranks = 2;
  std::string loss_unit = {};
};

/// 1,000 tokens in 0.5 s a step, the first step in 5 s; the loss falls from 4 to 2.
inline std::vector<double> row_of(const ArchivedRun& run, int step) {
  const double seconds = step == 1 ? 5 : 0.5, share = static_cast<double>(step - 1) / (run.steps - 1);
  std::vector<double> row{static_cast<double>(step), 4 - 2 * share, 1, 1e-3, seconds, 1000, 1000 / seconds, 8 / seconds, 0.1};
  if (!run.power.empty()) row.push_back(run.power.at(static_cast<std::size_t>(step - 1)));
  return row;
}

/// The archive of a run that goes on, with the steps that are done. Open: its end can be written.
inline std::unique_ptr<Archive> write_run(const std::string& path, const ArchivedRun& run) {
  auto made = std::make_unique<Archive>(path, true);
  Archive& archive = *made;
  archive.text("/config", R"({"model": "llama-tiny", "dataset": "synthetic", "strategy": "ddp", "ranks": )" +
                              std::to_string(run.ranks) + R"(, "precision": "bf16", "optimizer": "adamw", "schedule": "cosine",
    "learning_rate": 0.001, "global_batch": 8, "sequence": 125, "steps": )" +
                              std::to_string(run.steps) + R"(, "evaluate_every": 20, "price": ")" + run.price + R"("})");
  std::vector<Column> columns{
      {"step", "1", ""},       {"loss", run.loss_unit, ""}, {"grad_norm", "", ""},         {"learning_rate", "", ""},
      {"seconds", "", ""},     {"tokens", "", ""},          {"tokens_per_second", "", ""}, {"samples_per_second", "", ""},
      {"data_seconds", "", ""}};
  if (!run.power.empty()) columns.push_back({"device_power", "W", ""});
  archive.define_steps(columns);
  archive.text("/environment", R"({"host": "another-host", "device": ")" + run.device + R"(", "planned_for": {"machine": ")" +
                                   run.machine + R"(", "origin": ")" + run.origin + R"("}})");
  archive.text("/topology", R"({"ranks": 2, "axes": [{"name": "data", "size": 2, "strategy": "ddp", "transport": "nvlink",
                              "verified_path": "NVLink, by its counters"}]})");
  archive.text("/program", R"({"parameters": 1500000, "largest": {"planned_bytes": 3221225472, "planned_bytes_rank": 1,
                             "planned_host_bytes": 0, "planned_host_bytes_rank": 0}})");
  for (int step = 1; step <= run.done; ++step) {
    archive.append(row_of(run, step));
    if (step % 20 == 0)
      archive.evaluation({.step = step, .loss = 3.0 + 1.0 / step, .sequences = 64, .seconds = 2, .time = 1.7e9 + step});
  }
  archive.event(1.7e9, "checkpoint", R"({"step": 50, "bytes": 1048576})");
  return made;
}

inline void finish_run(Archive& archive) {
  archive.text("/result", R"({"planned_bytes": 3221225472, "planned_bytes_rank": 1, "measured_peak_bytes": 3221225472,
    "measured_peak_bytes_rank": 1, "share_of_bound": 0.71, "bound_problem": "", "mfu": 0.452, "model_flops_per_second": 4.5e14,
    "total_seconds": 75})");
  archive.finish("finished", "");
}

/// The lines that such commands show, as one text.
inline std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace consist::test
