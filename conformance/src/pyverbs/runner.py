"""Runs tests of rdma-core's suite and writes, as each begins and ends, a line of JSON.

    runner.py SUITE list
    runner.py SUITE RESULTS NAME...

SUITE is the folder of the suite. A name is as unittest has it, without "tests." before it.
"""
import json
import os
import sys
import traceback
import unittest
from importlib.machinery import SourceFileLoader

PACKAGE = "tests."


def name_of(test):
    return test.id().removeprefix(PACKAGE)


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def load(folder):
    sys.path.insert(0, folder)
    from args_parser import parser

    # The suite reads its own options from the command line, into this object.
    sys.argv = ["suite", "--dev", "softnic0"]
    parser.parse_args()
    package = SourceFileLoader("tests", os.path.join(folder, "__init__.py")).load_module()
    loader = unittest.TestLoader()
    for module in package.__test_modules__:
        yield from each(loader.loadTestsFromModule(module))


class Result(unittest.TestResult):
    def __init__(self, path):
        super().__init__()
        self.out = open(path, "a", buffering=1)
        self.ended = None

    def say(self, line):
        self.out.write(json.dumps(line) + "\n")

    def startTest(self, test):
        super().startTest(test)
        self.ended = None
        self.say({"begin": name_of(test)})

    def end(self, test, result, why="", trace=""):
        # What went wrong first is what went wrong: a test that failed may fail in its cleaning up as well.
        if self.ended is None or self.ended["result"] == "passed":
            self.ended = {"end": name_of(test), "result": result, "why": why, "trace": trace}

    def stopTest(self, test):
        super().stopTest(test)
        self.end(test, "passed")
        self.say(self.ended)

    def addSuccess(self, test):
        self.end(test, "passed")

    def addSkip(self, test, reason):
        self.end(test, "skipped", reason)

    def addFailure(self, test, err):
        self.wrong(test, err)

    def addError(self, test, err):
        self.wrong(test, err)
        if not isinstance(test, unittest.TestCase):
            # What a class or a module needs could not be made: no test of it begins.
            self.say(self.ended)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.wrong(test, err)

    def addUnexpectedSuccess(self, test):
        self.end(test, "failed", "passed, which was not expected")

    def wrong(self, test, err):
        said = str(err[1]).strip().splitlines()
        where = traceback.extract_tb(err[2])[-1]
        what = said[0] if said else f"{err[0].__name__} at {os.path.basename(where.filename)}:{where.lineno}"
        self.end(test, "failed", what, "".join(traceback.format_exception(*err)))


def main():
    folder, what, *names = sys.argv[1:]
    if what == "list":
        for test in load(folder):
            print(name_of(test))
        return
    wanted = set(names)
    unittest.TestSuite(test for test in load(folder) if name_of(test) in wanted).run(Result(what))


main()
