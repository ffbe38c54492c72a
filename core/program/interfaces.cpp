// Out-of-line destructors and defaults of the part interfaces: one type identity each, shared by the core and all plugins.
#include "consist/adapter.h"
#include "consist/dataset.h"
#include "consist/device.h"
#include "consist/error.h"
#include "consist/job.h"
#include "consist/loss.h"
#include "consist/model.h"
#include "consist/precision.h"
#include "consist/stage_estimate.h"
#include "consist/strategy.h"
#include "consist/transport.h"

namespace consist {

Adapter::~Adapter() = default;
Loss::~Loss() = default;
std::string Loss::unit() const {
  return default_unit;
}

std::vector<FrozenModel> Loss::frozen_models() const {
  return {};
}
Architecture::~Architecture() = default;
Model::~Model() = default;
Precision::~Precision() = default;
void Precision::rewrite(Program& /*forward*/) const {}
void Precision::add_passes(PassList& /*passes*/) const {}
ParallelStrategy::~ParallelStrategy() = default;
void ParallelStrategy::divide(Program& /*segment*/, AxisSet /*axes*/) const {}

void ParallelStrategy::schedule(Program& /*step*/, AxisSet /*axes*/) const {}
void ParallelStrategy::finish(Program& /*program*/, AxisSet /*axes*/) const {}
void ParallelStrategy::add_passes(PassList& /*passes*/, AxisSet /*axes*/) const {}
StageEstimator::~StageEstimator() = default;
Kernel::~Kernel() = default;
void Kernel::check() {}
Executable::~Executable() = default;
Device::~Device() = default;
std::map<std::string, std::string> Device::choose_options(DType /*dtype*/, std::int64_t /*m*/, std::int64_t /*n*/,
                                                          std::int64_t /*k*/) {
  return {};
}
std::vector<DeviceReading> Device::readings() {
  return {};
}
Job::~Job() = default;
Communicator::~Communicator() = default;
void Communicator::group_begin(NativeQueue /*queue*/) {}
void Communicator::group_end(NativeQueue /*queue*/) {}
void Communicator::check() {}
std::map<std::string, std::string> Communicator::versions() const {
  return {};
}
Transport::~Transport() = default;
int Transport::preference(std::string_view /*device_kind*/, bool /*several_hosts*/) const {
  return 0;
}
std::string Transport::cannot_connect(std::string_view /*device_kind*/, bool /*several_hosts*/) const {
  return {};
}
Dataset::~Dataset() = default;
std::vector<Field> Dataset::fields() const {
  return {};
}
void Dataset::read_train_fields(std::int64_t /*index*/, std::span<const FieldValues> values) const {
  if (!values.empty())
    throw ProgramError("the dataset has the field '" + values.front().field.name + "', but no read_train_fields()");
}
void Dataset::read_eval_fields(std::int64_t /*index*/, std::span<const FieldValues> values) const {
  if (!values.empty())
    throw ProgramError("the dataset has the field '" + values.front().field.name + "', but no read_eval_fields()");
}
std::string Dataset::tokenizer() const {
  return {};
}
std::vector<std::string> Dataset::warnings() const {
  return {};
}
std::string Dataset::chat_template() const {
  return {};
}

}  // namespace consist
