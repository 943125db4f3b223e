"""placeholder"""
import sys
from pathlib import Path
from benchmarks.compare.measure import *
name=sys.argv[1]
(a,)=[a for a in ALTERNATIVES if a.name==name]
with bench(a,0) as b:
    try:
        b.measure_all({"refund":3,"fan_out":1,"agent":1})
    except BaseException:
        print(b.app._log.read_text()[-6000:])
        raise
