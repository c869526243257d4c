/* frame.h - what is around the sections: head, style, the script, the end. */
#ifndef SW_TOOLS_REPORT_PAGE_FRAME_H
#define SW_TOOLS_REPORT_PAGE_FRAME_H

#include "tools/report/page/html.h"

extern const char sw_page_style[];
extern const char sw_page_script[];

/* Up to what is in <body>. The page may load nothing from anywhere, and run no script but its own,
 * which a digest in its head names. */
void sw_page_begin(sw_html *h, const char *title);
void sw_page_end(sw_html *h);

#endif
