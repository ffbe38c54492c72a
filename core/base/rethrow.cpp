#include "core/base/rethrow.h"

#include <exception>

#include "consist/error.h"

namespace consist {

void rethrow_after(const std::string& done) {
  try {
    throw;
  } catch (const DataError& error) {
    throw DataError(done + error.what());
  } catch (const SystemError& error) {
    throw SystemError(done + error.what());
  } catch (const UsageError& error) {
    throw UsageError(done + error.what());
  } catch (const std::exception& error) {
    throw Error(done + error.what());
  } catch (...) {
    throw Error(done + "it threw something that is no std::exception");
  }
}

}  // namespace consist
