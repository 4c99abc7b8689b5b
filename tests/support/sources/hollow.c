/* Nothing at all: the library is its SONAME. */
