# The OpenAI front (ftserve/front): what a base serves from, the front's wheels, and its package.
#
# Named contexts
#   base            serving image; the servers of the same base share its layers
#   toolchain-base  image with pip
#   recipe          steps/: the programs that the stages run; openai.txt: Python packages
#   wheels          the wheels that openai.txt names by hash
#   front           the package ftserve.front, which needs nothing else of ours

FROM scratch AS pip-steps
COPY --from=recipe --chmod=755 steps/pip-install.sh /

FROM scratch AS layer-steps
COPY --from=recipe --chmod=755 steps/fixed-times.sh steps/put.sh /


FROM toolchain-base AS python
USER root
RUN --network=none \
    --mount=type=bind,from=pip-steps,target=/steps \
    --mount=type=bind,from=recipe,source=openai.txt,target=/recipe/openai.txt \
    --mount=type=bind,from=wheels,target=/wheels \
    /steps/pip-install.sh /recipe/openai.txt /python


FROM base AS openai
USER root
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=python,source=/python,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /
RUN --network=none --mount=type=bind,from=layer-steps,target=/steps \
    --mount=type=bind,from=front,target=/from \
    /steps/fixed-times.sh /steps/put.sh /from /opt/ftserve/ftserve/front
ENV PYTHONPATH=/opt/ftserve PYTHONUNBUFFERED=1
EXPOSE 8003
WORKDIR /tmp
USER 1000:1000
CMD ["python3", "-m", "ftserve.front", "--help"]
