/* abi.c - what libswage_cuda.so was built from, which forward.c compares with its own. SW_ABI comes
 * from the Makefile. */
extern const char sw_cuda_abi[];
const char sw_cuda_abi[] = SW_ABI;
