#include "consist/error.h"

namespace consist {

// Out of line, so that each exception has one type identity in the core and plugins can catch what the core throws.
Error::~Error() = default;
UsageError::~UsageError() = default;
DataError::~DataError() = default;
SystemError::~SystemError() = default;
UnavailableError::~UnavailableError() = default;
PeerError::~PeerError() = default;
ProgramError::~ProgramError() = default;

}  // namespace consist
