// Parts as the host hands them out: each call is marked with the plugin's name, what it throws is named, and what it returns is
// checked where nobody else could (null, counts below 0, tokens outside of the vocabulary).
#pragma once

#include <memory>

#include "consist/adapter.h"
#include "consist/dataset.h"
#include "consist/device.h"
#include "consist/kernel_registry.h"
#include "consist/loss.h"
#include "consist/model.h"
#include "consist/observer.h"
#include "consist/optimizer.h"
#include "consist/precision.h"
#include "consist/schedule.h"
#include "consist/strategy.h"
#include "consist/transport.h"
#include "core/plugin/plugin_call.h"

namespace consist {

// The identity lives as long as the process. What a part makes (architectures, communicators, executables) is guarded likewise;
// a device's kernels are not: they are launched from its threads, where a crash is recognised by its address. Those of kernel sets are.
CONSIST_API std::shared_ptr<Model> guarded(std::shared_ptr<Model> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Adapter> guarded(std::shared_ptr<Adapter> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Loss> guarded(std::shared_ptr<Loss> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<ParallelStrategy> guarded(std::shared_ptr<ParallelStrategy> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Precision> guarded(std::shared_ptr<Precision> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Optimizer> guarded(std::shared_ptr<Optimizer> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Schedule> guarded(std::shared_ptr<Schedule> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Observer> guarded(std::shared_ptr<Observer> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Dataset> guarded(std::shared_ptr<Dataset> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Transport> guarded(std::shared_ptr<Transport> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<KernelSet> guarded(std::shared_ptr<KernelSet> part, const PluginIdentity& plugin);
CONSIST_API std::shared_ptr<Device> guarded(std::shared_ptr<Device> part, const PluginIdentity& plugin);

}  // namespace consist
