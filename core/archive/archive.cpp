#include "core/archive/archive.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "consist/error.h"
#include "core/archive/archive_file.h"
#include "core/archive/archive_place.h"
#include "core/archive/hdf5.h"

namespace consist {

Archive::Archive(const std::string& path, bool overwrite) : path_(path), file_(std::make_unique<File>()) {
  const hdf5::Session session;
  file_->path = path;
  file_->overwrite = overwrite;
  file_->begin();
}

Archive::~Archive() {
  // HDF5 would try to write the rest of a file that has failed, and tear what is whole in it: such a file is left open, out of
  // reach.
  static std::vector<std::unique_ptr<File>>& failed = *new std::vector<std::unique_ptr<File>>;
  const hdf5::Session session;
  try {
    if (!file_->broken) file_->publish();
  } catch (const Error&) {
    // Somebody else has taken the name meanwhile.
  }
  if (!file_->broken) return;
  if (!file_->partial.empty()) ::unlink(std::exchange(file_->partial, {}).c_str());
  failed.push_back(std::move(file_));
}

void Archive::rename(const std::string& path) {
  const hdf5::Session session;
  file_->require_open();
  file_->flush();
  if (std::rename(path_.c_str(), path.c_str()) != 0) {
    throw SystemError("cannot give the archive " + path_ + " the name " + path + ": " + std::strerror(errno));
  }
  path_ = path;
  file_->path = path;
}

void Archive::text(const std::string& path, const std::string& json) {
  const hdf5::Session session;
  file_->require_open();
  const auto found = file_->texts.find(path);
  if (found == file_->texts.end()) throw ProgramError("an archive has no text " + path);
  file_->write_text(found->second, json);
  file_->flush();
}

void Archive::define_experts(const std::vector<std::int64_t>& layers, std::int64_t experts) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (!file.steps.series.empty() || !file.experts.series.empty())
    throw ProgramError("/experts is defined late or twice in " + path_);
  const hdf5::Handle group =
      file.own(H5Gcreate2(file.file.id(), "experts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create /experts");
  const std::array<hsize_t, 2> shape{layers.size(), static_cast<hsize_t>(experts)};
  const auto matrix = [&](hid_t of) { return file.own(H5Tarray_create2(of, 2, shape.data()), H5Tclose, "describe /experts"); };
  const hdf5::Handle stored = matrix(H5T_STD_I32LE), in_memory = matrix(H5T_NATIVE_INT32);
  const std::int64_t no_step = -1;
  File::Series layer = file.series(group.id(), "layer", H5T_STD_I64LE, H5T_NATIVE_INT64, layers.size(), nullptr);
  file.describe(layer, "1", "the transformer layer of each router, counted from 0");
  for (std::size_t row = 0; row < layers.size(); ++row) file.put(layer, row, &layers[row]);
  std::vector<File::Series>& series = file.experts.series;
  series.push_back(file.series(group.id(), "step", H5T_STD_I64LE, H5T_NATIVE_INT64, File::kExpertsChunk, &no_step));
  file.describe(series[0], "1", "step, counted from 1");
  series.push_back(file.series(group.id(), "choices", stored.id(), in_memory.id(), File::kExpertsChunk, nullptr));
  file.describe(series[1], "1", "how many choices of the step's tokens fell on each expert, over all ranks: [routers, experts]");
}

void Archive::packed_text(const std::string& path, const std::string& json) {
  const hsize_t bytes = json.size();
  const hdf5::Session session;
  file_->require_open();
  const auto found = file_->packed.find(path);
  if (found == file_->packed.end()) throw ProgramError("an archive has no compressed text " + path);
  file_->check(H5Dset_extent(found->second.id(), &bytes), "write a text");
  file_->check(H5Dwrite(found->second.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, json.data()), "write a text");
  file_->flush();
}

void Archive::define_steps(const std::vector<Column>& columns) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (!file.steps.series.empty()) throw ProgramError("the columns of /steps are defined twice in " + path_);
  if (columns.empty() || columns.front().name != "step") throw ProgramError("the first column of /steps must be \"step\"");
  for (const Column& column : columns) {
    const bool is_step = &column == &columns.front();
    // A row whose chunk never reached the file reads as this: see ArchiveReader.
    const std::int64_t no_step = -1;
    const double no_value = std::nan("");
    File::Series series =
        is_step ? file.series(file.steps_group.id(), column.name, H5T_STD_I64LE, H5T_NATIVE_INT64, File::kChunk, &no_step)
                : file.series(file.steps_group.id(), column.name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, File::kChunk, &no_value);
    file.describe(series, column.unit, column.long_name);
    file.steps.series.push_back(std::move(series));
  }
  file.flush();
  file.publish();
}

void Archive::append(std::span<const double> values) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (file.steps.series.empty() || values.size() != file.steps.series.size()) {
    throw ProgramError("a row of " + std::to_string(values.size()) + " values for " + std::to_string(file.steps.series.size()) +
                       " columns of /steps in " + path_);
  }
  const auto step = static_cast<std::int64_t>(values.front());
  std::vector<const void*> row{&step};
  for (const double& value : values.subspan(1)) row.push_back(&value);
  file.add(file.steps, File::kChunk, row);
}

void Archive::experts(const ArchivedChoices& row) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (file.experts.series.empty() || row.choices.size() * sizeof(std::int32_t) != H5Tget_size(file.experts.series[1].type.id()))
    throw ProgramError("a row of " + std::to_string(row.choices.size()) + " choices does not fit /experts in " + path_);
  file.add(file.experts, File::kExpertsChunk, std::array<const void*, 2>{&row.step, row.choices.data()});
}

void Archive::define_evaluations(std::span<const Column> columns, const std::string& loss_unit) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (!file.steps.series.empty()) throw ProgramError("columns of /evaluations are defined late in " + path_);
  const hdf5::Handle group = file.own(H5Gopen2(file.file.id(), "evaluations", H5P_DEFAULT), H5Gclose, "open /evaluations");
  for (const Column& column : columns) {
    file.add_evaluated(group.id(), column);
    file.evaluated_metrics.push_back(column.name);
  }
  file.replace_unit(file.evaluations.series[File::kEvaluatedLoss], loss_unit);
}

void Archive::evaluation(const ArchivedEvaluation& row) {
  const hdf5::Session session;
  file_->require_open();
  std::vector<const void*> values{&row.step, &row.loss, &row.sequences, &row.seconds, &row.time};
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& name : file_->evaluated_metrics) {
    const auto found = std::ranges::find(row.metrics, name, &OwnMetricValue::name);
    values.push_back(found == row.metrics.end() ? &unknown : &found->value);
  }
  file_->add(file_->evaluations, File::kEvaluationChunk, values);
}

void Archive::event(double time, const std::string& kind, const std::string& text) {
  const hdf5::Session session;
  file_->require_open();
  const std::vector<char> kind_bytes = hdf5::fixed(kind, File::kKindBytes), text_bytes = hdf5::fixed(text, File::kTextBytes);
  file_->add(file_->events, File::kEventChunk, std::array<const void*, 3>{&time, kind_bytes.data(), text_bytes.data()});
}

void Archive::finish(const std::string& status, const std::string& reason) {
  const hdf5::Session session;
  File& file = *file_;
  file.require_open();
  if (status != "finished" && status != "failed" && status != "stopped") throw ProgramError("an archive has no status " + status);
  file.replace_attribute("reason", reason, File::kTextBytes);
  file.replace_attribute("status", status, File::kStatusBytes);
  file.flush();
  file.publish();
  file.texts.clear();
  file.packed.clear();
  file.steps_group.reset();
  for (File::Table* table : {&file.steps, &file.evaluations, &file.events, &file.experts}) table->series.clear();
  file.fences.clear();
  if (!file.file.reset()) file.fail("close the file");
  file.lock = Descriptor();
}

}  // namespace consist
