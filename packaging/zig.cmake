# What the wheel says about the code of others that is linked into it statically: licences, and a
# CycloneDX bill of materials (PEP 770).
set(PYR_ZIG "" CACHE PATH "directory of zig, which brings the C library of the static probe")
file(STRINGS "${PYR_ZIG}/lib/libc/musl/src/internal/version.h" _musl REGEX "VERSION")
string(REGEX MATCH "[0-9.]+" PYR_MUSL_VERSION "${_musl}")
execute_process(COMMAND "${PYR_ZIG}/zig" version OUTPUT_VARIABLE PYR_ZIG_VERSION
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${Python_EXECUTABLE}" -c "import cffi; print(cffi.__version__)"
  OUTPUT_VARIABLE PYR_CFFI_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
configure_file("${CMAKE_CURRENT_LIST_DIR}/sbom.cdx.json.in"
  "${CMAKE_CURRENT_BINARY_DIR}/pyresolve-native.cdx.json" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/pyresolve-native.cdx.json"
  DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
install(FILES "${PYR_ZIG}/lib/libc/musl/COPYRIGHT" DESTINATION "${SKBUILD_METADATA_DIR}/licenses"
  RENAME LICENSE.musl)
install(FILES "${PYR_ZIG}/LICENSE" DESTINATION "${SKBUILD_METADATA_DIR}/licenses" RENAME LICENSE.zig)
