#!/bin/sh
# Compiles native/metal against Apple's own headers, without linking: tests/metal/check_apple_headers.sh SDK [FILE...]
# SDK is a folder outside the checkout with include/ and Frameworks/ of macOS 14 or newer, such as a copy of
# the repository hexops/xcode-frameworks. Needs clang (19 is tested; CLANG names another one). Run from the root of the repository.
set -eu
sdk=$1
shift
clang=${CLANG:-clang-19}
[ $# -gt 0 ] || set -- native/metal/*.mm
for file; do
  echo "$file"
  "$clang" -target arm64-apple-macos14 -nostdinc -nostdinc++ -isystem "$sdk/include/c++/v1" \
    -isystem "$("$clang" -print-resource-dir)/include" -isystem "$sdk/include" -iframework "$sdk/Frameworks" \
    -std=c++20 -fno-objc-arc -Wall -Wextra -Werror -Inative -Inative/include -c "$file" -o /dev/null
done
