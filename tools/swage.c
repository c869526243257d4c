/* swage.c - the program's entry. */
#include <stdio.h>

int main(void)
{
    (void)puts("swage " SW_VERSION);
    return 0;
}
