#include "core/training/session.h"

#include <utility>

#include "core/connect/agreement.h"
#include "core/connect/device_options.h"
#include "core/connect/host_memory.h"
#include "core/plan/links.h"
#include "core/plan/parts.h"
#include "core/plan/transports.h"

namespace consist {

Session::Opened Session::open(const Plan& plan, Job& job, StartTimes* times) {
  OpenDevice opened = open_device(plan.parts(), plan.config(), plan.host(), job);
  MachineChoice machine = agree_on_machine(job, opened.device->info(), plan.config().machine);
  if (times != nullptr) times->finished("device");
  AutomaticTransports automatic;  // of one rank there is nothing to connect
  if (job.size() > 1) automatic = agree_on_transports(job, plan.config(), plan.host(), opened.device->info().kind);
  const Plan planned = plan.for_target({opened.device, std::make_shared<Machine>(machine.machine), true, std::move(automatic)});
  JobChoices choices{.options = std::move(opened.options), .transport = chosen_transports(planned), .notes = opened.notes};
  if (!machine.note.empty()) choices.notes.push_back(machine.note);
  return {planned.with_choices(std::move(choices)), std::move(machine), std::move(opened.notes)};
}

Session::Session(const Plan& plan, JoinedJob& job, StartTimes* times) : Session(open(plan, job, times), job, {}, times) {
  make_transport_ = [this](const std::string& name) {
    return make_transport(name, plan_.config(), plan_.host(), device().info().kind);
  };
}

Session::Session(Plan plan, JoinedJob& job, TransportMaker make)
    : Session(Opened{std::move(plan), {}, {}}, job, std::move(make), nullptr) {}

Session::Session(Opened opened, JoinedJob& job, TransportMaker make, StartTimes* times)
    : job_(job),
      times_(times),
      plan_(std::move(opened.plan)),
      machine_(std::move(opened.machine)),
      device_notes_(std::move(opened.device_notes)),
      make_transport_(std::move(make)) {}

void Session::finished(const char* part) {
  if (times_ != nullptr) times_->finished(part);
}

std::int64_t Session::memory_limit() const {
  const std::int64_t asked = plan_.config().memory_limit;
  return asked > 0 ? asked : device().info().memory_bytes;
}

void Session::prepare(NamedPrograms programs) {
  std::vector<std::string> names;
  std::vector<const Program*> all;
  for (const NamedProgram& named : programs) {
    names.push_back(named.name);
    all.push_back(&named.program);
  }
  // Before connecting: a rank whose message nobody receives would wait for a connection.
  agree_on_programs(job_, "collectives", all);
  communicators_.emplace(plan_.layout().mesh, job_, device(), make_transport_, all);
  finished("connecting");
  state_ =
      std::make_unique<TrainingState>(std::move(programs), device(), communicators_->by_queue(), job_.rank(), memory_limit());
  all.clear();
  for (const std::string& name : names) all.push_back(&state_->find(name)->program());
  agree_on_programs(job_, "planned collectives", all);
  check_host_memory(job_, state_->planned_host_bytes(), plan_.config().host_memory_limit);
  finished("kernels");
}

void Session::replace(Plan plan, NamedPrograms programs, bool timed) {
  state_->replace_programs(std::move(programs), communicators_->by_queue(), timed);
  plan_ = std::move(plan);
}

}  // namespace consist
