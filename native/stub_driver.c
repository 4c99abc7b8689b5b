/* Stands in for libcuda.so.1 (its SONAME, set by the linker) if there is no driver, so that
 * everything else a library needs can still be resolved for real. It defines no symbol: a call
 * into it cannot succeed by accident. */
extern const char pyr_stub_driver[];
__attribute__((visibility("default"))) const char pyr_stub_driver[] = "pyresolve stub driver";
