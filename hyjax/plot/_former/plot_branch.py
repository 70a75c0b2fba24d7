"""The former path of `hyjax.plot.branch`."""

from .plot.branch import branch_diagram as branch_diagram, locus_diagram as locus_diagram
