from Cython.Build import cythonize
from setuptools import Extension, setup

import pyturbo

setup(
    name="launcher",
    ext_modules=cythonize(
        [
            Extension(
                "launcher",
                ["launcher.pyx"],
                include_dirs=[pyturbo.get_include()],
                extra_compile_args=["-std=c++20"],
                language="c++",
            )
        ],
        language_level=3,
    ),
)
