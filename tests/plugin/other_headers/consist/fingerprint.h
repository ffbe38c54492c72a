// Stands before the generated header on the include path of one test plugin, which so looks as if built against other headers.
#pragma once
#define CONSIST_HEADERS_HASH "00000000deadbeef"
