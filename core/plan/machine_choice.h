// Chooses the machine that is planned for: the one that --machine names, or that of the device which is there.
#pragma once

#include <memory>
#include <string>

#include "consist/cost.h"
#include "consist/device.h"
#include "consist/export.h"
#include "consist/job.h"
#include "core/cost/power.h"
#include "core/cost/step_errors.h"

namespace consist {

/// "h100", "folder/machine.json", or either with values that replace its own:
/// "h100,products=0.6,network=12.5e9,ranks-per-node=4". Throws UsageError naming what is known, and as read_json() and
/// machine_from_json() do.
CONSIST_API Machine parse_machine(const std::string& text);

/// Returns the machine for a plan without a device: the one that --machine names (`text`, as above), else reference_machine().
CONSIST_API std::shared_ptr<const Machine> machine_named(const std::string& text);

/// The power that the same file has, by the same text; nothing is known where it has none. Throws as parse_machine().
CONSIST_API Power power_named(const std::string& text);

/// The errors of steps that the file has by which `machine` was named (--machine; empty: it is that of a device, and the file
/// that ships under its name counts). Throws as parse_machine(), where the file is read the first time.
CONSIST_API StepErrors step_errors_for(const std::string& named, const Machine& machine);

/// "h100, 8 ranks a node; products at 70%, ...": what an estimate rests on, for people.
CONSIST_API std::string text_of(const Machine& machine);

/// The machine that a device is planned for.
struct MachineChoice {
  Machine machine;
  std::string note;    ///< for people, if it is not the device's own: which other one it is, and why
  std::string origin;  ///< for the archive: "the device's", "the nearest to the device's", "--machine h200,network=1e10"
};
/// The machine that ships for this device; without one, that of the same kind, or of any, whose memory has the nearest size.
CONSIST_API MachineChoice machine_for(const DeviceInfo& device);

/// Collective over the job: what all ranks plan for, since ranks with different machines would come to different programs. Rank
/// 0's choice: the machine that `named` says (parse_machine) or that of its device, and as many ranks a node as are on its host.
/// The note and the origin are on rank 0 alone. Throws as parse_machine() on rank 0, and as Job::broadcast.
CONSIST_API MachineChoice agree_on_machine(Job& job, const DeviceInfo& device, const std::string& named);

}  // namespace consist
